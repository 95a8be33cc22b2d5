"""checkpoint: the same values and derivatives, of fewer rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable

import scanopt_cli as so
from scanopt_cli import loop
from scanopt_cli.errors import PassError
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.reports.remark_text import text_of

VM = Mode("vm", "fast_run")
X, W = pt.dvector("x"), pt.dscalar("w")
S, M = pt.dvector("s"), pt.dmatrix("m")
N = pt.lscalar("n")
INPUTS = [X, W, S, M, N]


def arguments(n: int, n_rows: int | None = None) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    rows = n if n_rows is None else n_rows
    return [
        rng.normal(size=2),
        np.array(0.9),
        rng.normal(size=rows),
        0.4 * rng.normal(size=(2, 2)),
        np.array(n),
    ]


def _sequence() -> Variable:
    def step(y: Any, d: Any, given: Any) -> Any:
        w, m = given
        return pt.tanh(m @ y * w) + d, ()

    return loop.scan(step, X, S, (W, M))[0]


def _two_states() -> Variable:
    def step(carry: Any, d: Any, given: Any) -> Any:
        (y, total), (w, m) = carry, given
        return (pt.sin(m @ y) + d, total + w * y.sum() ** 2), ()

    y, total = loop.scan(step, (X, pt.zeros(())), S, (W, M))[0]
    return y * total


def _index_read() -> Variable:
    index, y, w, s = pt.lscalar(), X.type(), W.type(), S.type()
    body = Body(index=index, states=[y], next_states=[pt.cos(y * w) + s[index] * (index + 1)])
    return TracedLoop.over(N, body, [X], {w: W, s: S})[0]


def _matrix_of_all() -> Variable:
    index, y, m = pt.lscalar(), M.type(), M.type()
    body = Body(index=index, states=[y], next_states=[pt.tanh(y @ m)])
    return TracedLoop.over(N, body, [M], {m: M})[0]


LOOPS: dict[str, Callable[[], Variable]] = {
    "a sequence": _sequence,
    "two states": _two_states,
    "the index": _index_read,
    "a matrix": _matrix_of_all,
}


def outputs(inputs: list[Variable], last: Any, order: int) -> list[Variable]:
    """Return the sum of squares of a last value, and its derivatives."""
    cost = (last**2).sum()
    found = [cost]
    for _ in range(order):
        slopes = pytensor.grad(cost, inputs[:4], disconnected_inputs="ignore")
        found += slopes
        cost = sum((slope**2).sum() for slope in slopes)
    return found


def split(last: Variable, options: str = "") -> Any:
    return so.optimize((INPUTS, [last]), f"checkpoint{options}")


def remarks(result: Any) -> list[str]:
    return [text_of(remark) for remark in result.passes[0].remarks]


def check(name: str, options: str, order: int, counts: list[int], mode: Any = VM) -> None:
    last = LOOPS[name]()
    result = split(last, options)
    assert result.changed
    functions = [
        pytensor.function(
            inputs, outputs(inputs, value, order), mode=mode, on_unused_input="ignore"
        )
        for inputs, value in (
            (INPUTS, last),
            (list(result.graph.inputs), result.graph.outputs[0]),
        )
    ]
    for n in counts:
        expected, found = (function(*arguments(n)) for function in functions)
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize("name", LOOPS)
def test_case_1(name: str) -> None:
    """Of no steps, of fewer than a block has, of whole blocks, and of a rest."""
    check(name, "{steps=3}", 1, [0, 1, 2, 3, 4, 6, 11])


def test_blocks_of_the_square_root() -> None:
    check("a sequence", "", 1, [0, 1, 2, 5, 16, 17])


@pytest.mark.deep
@pytest.mark.parametrize("name", LOOPS)
def test_second_derivatives(name: str) -> None:
    check(name, "{steps=3}", 2, [0, 2, 3, 7])


@pytest.mark.deep
def test_derivatives_in_numba() -> None:
    check("two states", "{steps=3}", 1, [0, 2, 3, 7], "NUMBA")


@pytest.mark.deep
@settings(max_examples=80)
@given(st.sampled_from(sorted(LOOPS)), st.integers(0, 6), st.lists(st.integers(0, 30), min_size=1))
def test_any_blocks_of_any_number_of_steps(name: str, steps: int, counts: list[int]) -> None:
    check(name, f"{{steps={steps}}}", 1, counts)


def test_constants_are_counted() -> None:
    index, y = pt.lscalar(), X.type()
    body = Body(index=index, states=[y], next_states=[pt.sin(y)])
    (last, *_) = TracedLoop.over(pt.constant(100), body, [X], {})
    assert remarks(split(last)) == [
        "runs in blocks of 10 steps; its gradient keeps 20 rows of each state rather than 100"
    ]
    assert remarks(split(last, "{steps=20}")) == [
        "runs in blocks of 20 steps; its gradient keeps 25 rows of each state rather than 100"
    ]
    assert remarks(split(last, "{steps=100}")) == []
    (last, *_) = TracedLoop.over(pt.constant(5), body, [X], {})
    assert not split(last).changed  # in blocks it would be 5 rows, too


def test_a_number_of_steps_that_is_not_known_may_need_much_memory() -> None:
    index, y, w = pt.lscalar(), W.type(), W.type()
    body = Body(index=index, states=[y], next_states=[pt.sin(y * w)])
    assert split(TracedLoop.over(N, body, [W], {w: W})[0], "{memory=1000}").changed


def test_a_state_that_no_step_changes() -> None:
    index, y = pt.lscalar(), X.type()
    body = Body(index=index, states=[y], next_states=[y])
    (last, *_) = TracedLoop.over(N, body, [X], {})
    assert split(last, "{steps=3}").changed


def test_a_loop_that_is_split_stays() -> None:
    first = split(_sequence())
    second = so.optimize(first.graph, "checkpoint")
    assert not second.changed
    assert sum(isinstance(node.op, TracedLoop) for node in walk(second.graph.fgraph)) == 2


def _over(condition: Any = None, kind: Any = None, **options: Any) -> list[Variable]:
    index, y = pt.lscalar(), (kind or X.type)()
    body = Body(
        index=index, states=[y], next_states=[pt.sin(y)], condition=condition and condition(y)
    )
    return TracedLoop.over(options.get("n", N), body, [options.get("start", X)], {})


def test_traces_that_are_read_stay() -> None:
    last, trace, _ = _over()
    result = so.optimize((INPUTS, [last, trace]), "checkpoint")
    assert not result.changed
    assert remarks(result) == ["its traces are read"]


def test_loops_that_may_stop_stay() -> None:
    last, *_ = _over(condition=lambda y: y.sum() > 0)
    result = split(last)
    assert not result.changed
    assert remarks(result) == ["the loop may stop early"]


def test_generators_stay() -> None:
    rng = pytensor.shared(np.random.default_rng(0)).type("rng")
    index, state = pt.lscalar(), rng.type()
    following, _ = pt.random.normal(rng=state, return_next_rng=True)
    body = Body(index=index, states=[state], next_states=[following])
    last = TracedLoop.over(N, body, [rng], {})[0]
    result = so.optimize(([rng, N], [last]), "checkpoint")
    assert not result.changed
    assert remarks(result) == ["it has states without a trace"]


def test_what_fits_in_memory_stays() -> None:
    start = pt.tensor(shape=(1024,))
    last, *_ = _over(kind=start.type, start=start, n=pt.constant(1_000))
    result = so.optimize(([start], [last]), "checkpoint{memory=8}")
    assert not result.changed
    assert remarks(result) == ["its gradient would keep no more than 8 MiB"]
    assert so.optimize(([start], [last]), "checkpoint{memory=7}").changed


def test_loops_in_loops_stay() -> None:
    index, y = pt.lscalar(), X.type()
    inner = _over(start=y, n=pt.constant(50))[0]
    body = Body(index=index, states=[y], next_states=[inner + 1])
    last = TracedLoop.over(N, body, [X], {})[0]
    loops = [
        node
        for node in walk(split(last).graph.fgraph)
        if isinstance(node.op, TracedLoop) and node.inputs[0].owner is None
    ]
    assert [int(node.inputs[0].data) for node in loops if hasattr(node.inputs[0], "data")] == [50]


@pytest.mark.parametrize("options", ["{steps=-1}", "{memory=-1}"])
def test_options_are_checked(options: str) -> None:
    with pytest.raises(PassError, match="from 0 on"):
        split(_sequence(), options)


PEAK = """
import sys
import numpy as np, pytensor, pytensor.tensor as pt
import scanopt_cli as so
from scanopt_cli import loop

x, s = pt.tensor("x", shape=(16,)), pt.dvector("s")
last = loop.scan(lambda y, d: (pt.tanh(y) + d, ()), x, s)[0]
graph = so.optimize(([x, s], [(last**2).sum()]), sys.argv[1]).graph
inputs = list(graph.inputs)
slopes = pytensor.grad(graph.outputs[0], inputs)
run = pytensor.function(inputs, slopes, mode="NUMBA")
start = np.linspace(0.1, 0.2, 16)
run(start, np.full(10, 0.01))
series = np.full(1_000_000, 0.01)


def kibibytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


with open("/proc/self/clear_refs", "w") as control:
    control.write("5")  # the peak begins anew
before = kibibytes("VmRSS")
run(start, series)
print((kibibytes("VmHWM") - before) // 1024)
"""


# The peak is read and reset in /proc, which other systems do not have; CI runs Linux.
@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets a peak")
def test_peak_memory_of_a_million_steps() -> None:
    peaks = {
        pipeline: int(
            subprocess.run(
                [sys.executable, "-c", PEAK, pipeline],
                capture_output=True,
                check=True,
                text=True,
            ).stdout
        )
        for pipeline in ("none", "checkpoint")
    }
    # A trace of 16 numbers is 122 MiB, the cotangent of the series 8.
    assert peaks["none"] > 100
    assert peaks["checkpoint"] < 30
