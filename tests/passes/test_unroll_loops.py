"""unroll-loops: steps of short loops in loops, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable

import scanopt_cli as so
from scanopt_cli.errors import PassError
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.reports.remark_text import text_of
from support.evaluating import PLAIN

VM = Mode("vm", "fast_run")
X, W, N = pt.dvector("x"), pt.dvector("w"), pt.lscalar("n")
VALUES = np.array([0.3, -0.7]), np.array([1.1, 0.6]), np.array(3)

type Read = Callable[..., Any]
"""What the outer step makes of the outputs of the inner loop: last, trace, traced, count."""


def nested(read: Read, steps: Any = 4, **body: Any) -> Any:
    """Return the last value of three steps that run an inner loop each."""
    index, h, w = pt.lscalar(), X.type(), W.type()
    following = pt.tanh(h * w) + index / 10
    made: dict[str, Any] = {"next_states": [following], "traced": [h.sum() * (index + 1)], **body}
    condition = made.get("condition")
    step = Body(
        index=index, states=[h], **(made | ({"condition": condition(h)} if condition else {}))
    )
    outer, state, w_outside, n = pt.lscalar(), X.type(), W.type(), N.type()
    count = n if steps is N else steps
    inner = TracedLoop.over(count, step, [state], {w: w_outside}, name="inner")
    blocks = Body(index=outer, states=[state], next_states=[read(*inner)])
    return TracedLoop.over(3, blocks, [X], {w_outside: W, n: N})[0]


def unrolled(last: Variable, options: str = "") -> Any:
    return so.optimize(([X, W, N], [last]), f"unroll-loops{options}")


def n_loops(result: Any) -> int:
    return sum(isinstance(node.op, TracedLoop) for node in walk(result.graph.fgraph))


def remarks(result: Any) -> list[str]:
    return [text_of(remark) for remark in result.passes[0].remarks]


def check(read: Read, steps: int = 4, *, modes: Any = (PLAIN, VM)) -> None:
    last = nested(read, steps)
    result = unrolled(last)
    assert n_loops(result) == 1
    expected = pytensor.function([X, W, N], last, mode=PLAIN, on_unused_input="ignore")(*VALUES)
    graph = result.graph
    for mode in modes:
        compiled = pytensor.function(
            list(graph.inputs), list(graph.outputs), mode=mode, on_unused_input="ignore"
        )
        (found,) = compiled(*VALUES)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


READS: dict[str, Read] = {
    "last": lambda last, trace, traced, count: last,
    "the trace": lambda last, trace, traced, count: trace.sum(axis=0),
    "its last row": lambda last, trace, traced, count: trace[-1],
    "an entry": lambda last, trace, traced, count: last * trace[2, 1],
    "some of a column": lambda last, trace, traced, count: last * trace[1:3, 1].sum(),
    "backwards": lambda last, trace, traced, count: (trace[::-1][:3] * last).sum(axis=0),
    "one row backwards": lambda last, trace, traced, count: trace[:-2:-1].sum(axis=0),
    "one row of some backwards": lambda last, trace, traced, count: trace[1:][:-2:-1].sum(axis=0),
    "no rows": lambda last, trace, traced, count: last + trace[3:3].sum(),
    "a row that the step chooses": lambda last, trace, traced, count: trace[pt.minimum(count, 2)],
    "what is traced": lambda last, trace, traced, count: last * traced.sum() + traced[::-1][0],
    "the count": lambda last, trace, traced, count: last * count,
}


@pytest.mark.parametrize("name", READS)
def test_case_1(name: str) -> None:
    check(READS[name])


@pytest.mark.parametrize("name", ["one row backwards", "the trace", "what is traced"])
def test_one_step(name: str) -> None:
    check(READS[name], 1)


@pytest.mark.deep
def test_in_numba() -> None:
    check(READS["backwards"], modes=["NUMBA"])


_BOUND = st.none() | st.integers(-7, 7)
_SLICE = st.builds(slice, _BOUND, _BOUND, st.sampled_from([None, 1, 2, -1, -2]))


@pytest.mark.deep
@given(st.lists(_SLICE, min_size=1, max_size=3), st.integers(1, 5))
def test_rows_of_rows(slices: list[slice], steps: int) -> None:
    def read(last: Any, trace: Any, *_: Any) -> Any:
        for part in slices:
            trace = trace[part]
        return last + trace.sum(axis=0)

    check(read, steps)


def test_the_remark() -> None:
    assert remarks(unrolled(nested(READS["last"]))) == ["written out: 4 steps"]


STAYING: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "as many steps as are asked for": (lambda: nested(READS["last"], N), []),
    "many steps": (lambda: nested(READS["last"], 17), []),
    "no step": (lambda: nested(READS["last"], 0), []),
    "a condition": (
        lambda: nested(lambda last, *_: last, condition=lambda h: h.sum() < 2),
        ["the loop may stop early"],
    ),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_stays(name: str) -> None:
    build, why = STAYING[name]
    result = unrolled(build())
    assert n_loops(result) == 2
    assert remarks(result) == why


def test_large_steps_stay() -> None:
    index, h = pt.lscalar(), X.type()
    value = h
    for _ in range(20):
        value = pt.tanh(value)
    step = Body(index=index, states=[h], next_states=[value])
    outer, state = pt.lscalar(), X.type()
    inner = TracedLoop.over(16, step, [state], {})[0]
    last = TracedLoop.over(3, Body(index=outer, states=[state], next_states=[inner]), [X], {})[0]
    result = unrolled(last)
    assert n_loops(result) == 2
    assert remarks(result) == ["a step has more than 200 operations"]


def test_loops_in_no_loop_stay() -> None:
    index, h = pt.lscalar(), X.type()
    step = Body(index=index, states=[h], next_states=[pt.tanh(h)])
    result = unrolled(TracedLoop.over(3, step, [X], {})[0])
    assert n_loops(result) == 1


def test_more_steps_may_be_asked_for() -> None:
    assert n_loops(unrolled(nested(READS["last"], 17), "{steps=17}")) == 1
    assert n_loops(unrolled(nested(READS["last"], 4), "{steps=3}")) == 2
    with pytest.raises(PassError, match="from 0 on"):
        unrolled(nested(READS["last"]), "{steps=-1}")


def test_derivatives() -> None:
    last = nested(READS["the trace"])
    result = unrolled(last)
    pairs = [([X, W, N], last), (list(result.graph.inputs), result.graph.outputs[0])]
    functions = []
    for inputs, value in pairs:
        cost: Any = (value**2).sum()
        slopes = pytensor.grad(cost, inputs[:2])
        again = pytensor.grad(sum((s**2).sum() for s in slopes), inputs[:2])
        functions.append(
            pytensor.function(inputs, [*slopes, *again], mode=PLAIN, on_unused_input="ignore")
        )
    for found, expected in zip(*(f(*VALUES) for f in functions), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
