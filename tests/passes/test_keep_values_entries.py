"""keep-values, case 2: of an array state, the backward loop needs the entries that it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import TracedLoop
from scanopt_cli.reports.remark_text import text_of
from support.graph_building import scan
from support.tiers import examples

SIZE = 40
i, j, k = pt.lvector("i"), pt.lvector("j"), pt.dscalar("k")
r = pt.dvector("r")
WHOLE = pt.dvector("whole")
TABLE = pt.dmatrix("table")
INPUTS = [i, j, r, k, WHOLE, TABLE]
rng = np.random.default_rng(2)
GIVEN = [
    np.array([3, 0, -1, 3, 39, 7]),
    np.array([1, 1, 4, -2, 3, 0]),
    rng.normal(size=6),
    np.array(0.3),
    rng.normal(size=SIZE),
    rng.normal(size=(SIZE, SIZE)),
]


def _elo(i: Any, j: Any, r: Any, x: Any, k: Any) -> Any:
    change = k * (r - pt.tanh(x[i] - x[j]))
    return x[i].inc(change)[j].inc(-change), change**2


KEPT: dict[str, tuple[Callable[..., Any], Any]] = {
    "two entries": (_elo, WHOLE),
    "one, times itself": (lambda i, j, r, x, k: (x[i].set(x[i] ** 2 * k), x[i] * r), WHOLE),
    "of a matrix": (lambda i, j, r, x, k: (x[i, j].inc(k * x[i, j] ** 2), r), TABLE),
    "at a constant": (lambda i, j, r, x, k: (x[i].inc(x[2] ** 2 * k), x[i] ** 2), WHOLE),
}
STAYS: dict[str, tuple[Callable[..., Any], Any]] = {
    "the whole row as well": (
        lambda i, j, r, x, k: (x[i].inc(k * x[i] ** 2), (x**2).sum()),
        WHOLE,
    ),
    "an entry of another step": (
        lambda i, j, r, x, k: (x[i].inc(k * x[i] ** 2), (x[::-1] ** 2)[:3].sum()),
        WHOLE,
    ),
}


def gradient(step: Callable[..., Any], state: Any) -> Graph:
    states, terms = scan(step, sequences=[i, j, r], outputs_info=[state, None], non_sequences=[k])
    cost = terms.sum() + (states[-1] ** 2).sum()
    return from_io(INPUTS, [cost, *pt.grad(cost, [k, state, r], disconnected_inputs="ignore")])


def check(graph: Graph, work: Graph, mode: str) -> None:
    functions = [
        pytensor.function(list(g.inputs), list(g.outputs), mode=m, on_unused_input="ignore")
        for g, m in ((graph, "FAST_COMPILE"), (work, mode))
    ]
    for old, new in zip(*(f(*GIVEN) for f in functions), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-11, atol=1e-11)


def remarks(result: Any) -> list[str]:
    (run,) = (run for run in result.passes if run.name == "keep-values")
    return [text_of(remark) for remark in run.remarks]


def count(result: Any) -> int:
    """Count what `keep-values` did."""
    return sum(run.rewrites for run in result.passes if run.name == "keep-values")


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "FAST_RUN", "NUMBA"])
@pytest.mark.parametrize("name", KEPT)
def test_case_2(name: str, mode: str) -> None:
    graph = gradient(*KEPT[name])
    result = so.optimize(graph, "loop")
    assert count(result)
    check(graph, result.graph, mode)


@pytest.mark.parametrize("name", STAYS)
def test_what_is_read_otherwise_stays(name: str) -> None:
    graph = gradient(*STAYS[name])
    result = so.optimize(graph, "loop")
    assert not count(result)
    check(graph, result.graph, "NUMBA")


def test_a_trace_that_is_an_output_stays() -> None:
    states, terms = scan(_elo, sequences=[i, j, r], outputs_info=[WHOLE, None], non_sequences=[k])
    cost = terms.sum() + (states[-1] ** 2).sum()
    graph = from_io(INPUTS, [states, *pt.grad(cost, [k, WHOLE])])
    result = so.optimize(graph, "loop")
    assert remarks(result) == ["keeps 1 value of each step for the loop that runs backwards"]
    check(graph, result.graph, "FAST_COMPILE")


@pytest.mark.parametrize("n", [100, 1_000])
def test_no_step_touches_more_than_the_entries(n: int) -> None:
    """No trace that is read has rows of the size of the array."""
    state = pt.tensor("state", dtype="float64", shape=(n,))
    states, terms = scan(_elo, sequences=[i, j, r], outputs_info=[state, None], non_sequences=[k])
    cost = terms.sum() + (states[-1] ** 2).sum()
    graph = from_io([i, j, r, k, state], [cost, pt.grad(cost, state)])
    work = so.optimize(graph, "loop").graph
    loops = [node for node in walk(work.fgraph) if isinstance(node.op, TracedLoop)]
    assert len(loops) == 2
    for node in loops:
        read = [v for v in node.outputs if work.fgraph.clients.get(v)]
        assert not any(v.type.ndim == 2 and v.type.shape[1] in (n, None) for v in read)


@settings(max_examples=examples(6, 80))
@given(data=st.data())
def test_generated_steps(data: st.DataObject) -> None:
    """Entries at any of some indices, read before and after they are written."""
    n_reads = data.draw(st.integers(1, 3))
    places = [data.draw(st.sampled_from(["i", "j", "i + 1", "2"])) for _ in range(n_reads + 1)]

    def step(i: Any, j: Any, r: Any, x: Any, k: Any) -> Any:
        at = {"i": i, "j": j, "i + 1": (i + 1) % SIZE, "2": pt.constant(2)}
        total = r
        for place in places[1:]:
            total = total * k + pt.tanh(x[at[place]])
        new = x[at[places[0]]]
        new = new.set(total) if data.draw(st.booleans()) else new.inc(total)
        late = new[at[places[-1]]] ** 2 if data.draw(st.booleans()) else total
        return new, late

    graph = gradient(step, WHOLE)
    check(graph, so.optimize(graph, "loop").graph, "FAST_COMPILE")
