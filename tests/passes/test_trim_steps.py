"""trim-steps: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from evaluating import assert_same_outcomes
from graph_building import graph_of, only_scan, optimized, outputs_of, power, scan
from scanopt_cli.analysis.buffers import rows, trimmed
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.statistics import scan_views
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.scan_view import TRACED, ScanView

N = pt.lscalar("n")
LESS = "min(n,max(n-{k},0))"


def steps_of(view: ScanView) -> str:
    return str(Lengths().value_of(view.n_steps))


def rows_of(graph: Graph) -> list[str]:
    view = only_scan(graph.fgraph)
    lengths = Lengths(view.n_steps)
    return [str(rows(view, slot, lengths)) for slot in view.of_kind(*TRACED)]


def check(graph: Graph, *others: Graph, counts: tuple[int, ...] = (0, 1, 2, 5, 30)) -> None:
    for n in counts:
        values = {
            "n": n,
            "x": 1.01,
            "start": [1.0, 2.0],
            "s": np.linspace(0, 1, n),
            "batch": [1.0, 0.9],
        }
        expected = outputs_of(graph, **values)
        for other in others:
            assert_same_outcomes(expected, outputs_of(other, **values))


def trimmed_to(graph: Graph) -> tuple[str, list[str], list[str]]:
    """Steps after `trim-steps`, rows that `save-mem` keeps then, and what the pass says."""
    after, remarks = optimized(graph, "trim-steps")
    assert trimmed(only_scan(after.fgraph)) == []
    both, _ = optimized(graph, "trim-steps,save-mem")
    check(graph, after, both)
    return steps_of(only_scan(after.fgraph)), rows_of(both), remarks


def unchanged(graph: Graph) -> list[str]:
    after, remarks = optimized(graph, "trim-steps")
    check(graph, after)
    assert all(remark.startswith("missed") for remark in remarks), remarks
    return remarks


def test_case_1_first_steps() -> None:
    _, xs = power(N)
    assert trimmed_to(graph_of(xs[2]))[0] == "min(3,n)"


def test_case_1_while_loop() -> None:
    x = pt.dscalar("x")
    xs = scan(lambda y: (y * 1.5, until(y > 3)), outputs_info=[x], n_steps=20)
    assert trimmed_to(graph_of(xs[2]))[0] == "3"


KNOWN: list[tuple[Any, str, str]] = [
    (lambda xs: xs[-20:-10], "90", "11"),
    (lambda xs: xs[50], "51", "2"),
    (lambda xs: xs[99], "100", "2"),
    (lambda xs: xs[::10], "91", "92"),
    (lambda xs: xs[pt.as_tensor([3, 50])], "51", "52"),
    (lambda xs: xs[pt.as_tensor([40, 50])], "51", "12"),
    (lambda xs: xs[80:60:-7], "81", "16"),
    (lambda xs: xs[-20:-10][::-1][2:5], "88", "4"),
    (lambda xs: xs[:-1][-1], "99", "2"),
    (lambda xs: xs[90] + xs[-1], "100", "11"),
    (lambda xs: xs[-3:][::-1], "100", "4"),
    (lambda xs: xs[::-1][:3], "100", "4"),
    (lambda xs: xs[-1:-4:-1], "100", "4"),
    (lambda xs: xs[5:5], "1", "2"),
]


@pytest.mark.parametrize(("read", "steps", "kept"), KNOWN)
def test_case_2_known_steps(read, steps: str, kept: str) -> None:
    x = pt.dscalar("x")
    xs = scan(lambda y: y * 0.99 + 0.1, outputs_info=[x], n_steps=100)
    found = trimmed_to(graph_of(read(xs)))
    assert (found[0], found[1][0]) == (steps, kept)


def test_case_2_nit_sot_and_other_axes() -> None:
    start = pt.dvector("start")
    ys, zs = scan(lambda a: [a * 0.9, a + 1], outputs_info=[start, None], n_steps=100)
    assert trimmed_to(graph_of(zs[-20:-10, 0], ys[85, 1:]))[:2] == ("90", ["6", "10"])


def test_case_2_twin_reader_out_of_bounds() -> None:
    _, xs = power(4)
    (remark,) = unchanged(graph_of(xs[4]))
    assert remark.endswith("all 4 steps: a reader is out of bounds")


def test_case_2_twin_symbolic_index() -> None:
    _, xs = power(40)
    assert unchanged(graph_of(xs[-N:], xs[3])) == []


def test_case_2_twin_no_steps() -> None:
    _, xs = power(0)
    assert unchanged(graph_of(xs[:3], xs[-3:-1])) == []


LAST: list[tuple[Any, int, str]] = [
    (lambda xs: xs[-20:-10], 10, "min(10,n,max(n-10,0))+1"),
    (lambda xs: xs[-5], 4, "min(1,n,max(n-4,0))+1"),
    (lambda xs: xs[-3:-20:-7], 2, "min(17,n,max(n-2,0))+1"),
    (lambda xs: xs[-5] + xs[-3:-1].sum(), 1, "min(4,n,max(n-1,0))+1"),
    (lambda xs: xs[pt.as_tensor([-3, -4])], 2, "min(2,n,max(n-2,0))+1"),
    (lambda xs: xs[:-1], 1, "min(n,max(n-1,0))+1"),
    (lambda xs: xs[3:-2], 2, "min(n,max(n-2,0))+1"),
    (lambda xs: xs[-3::-1], 2, "min(n,max(n-2,0))+1"),
    (lambda xs: xs[: N - 1], 1, "min(n,max(n-1,0))+1"),
    (lambda xs: xs.owner.inputs[0][:-1], 1, "min(n,max(n-1,0))+1"),
    (lambda xs: xs.owner.inputs[0][-2::-1], 1, "min(n,max(n-1,0))+1"),
]


@pytest.mark.parametrize(("read", "less", "kept"), LAST)
def test_case_3_last_steps_of_any_number(read, less: int, kept: str) -> None:
    _, xs = power(N)
    assert trimmed_to(graph_of(read(xs)))[:2] == (LESS.format(k=less), [kept])


@pytest.mark.parametrize("read", [lambda xs: xs[-10:-20], lambda xs: xs[-2:], lambda xs: xs[:-1:]])
def test_case_3_twin_one_reader_of_the_last_row(read) -> None:
    _, xs = power(N)
    assert unchanged(graph_of(read(xs), xs[-1])) == []


def test_case_3_twin_trace_whose_rows_would_lose_their_shape() -> None:
    start = pt.dvector("start")
    _, zs = scan(lambda a: [a * 0.9, a + 1], outputs_info=[start, None], n_steps=N)
    (remark,) = unchanged(graph_of(zs[:-1]))
    assert "PyTensor loses the shape of a trace of no steps" in remark
    assert trimmed_to(graph_of(zs[-2]))[0] == LESS.format(k=1)


@pytest.mark.parametrize("steps", [N, 8])
def test_case_4_gradient_of_the_last_state(steps) -> None:
    """PyTensor 3.3.7 runs the forward loop once more than is read."""
    x, xs = power(steps)
    graph = graph_of(pt.grad(xs[-1], x))
    after, _ = optimized(graph, "simplify{outer=true},trim-steps")
    counts = {view.name: steps_of(view) for view in scan_views(after.fgraph)}
    assert counts["square"].startswith("7" if steps == 8 else "min(n,")
    for n in (1, 2, 5):
        values = {"x": 1.01} | ({} if steps == 8 else {"n": n})
        assert_same_outcomes(outputs_of(graph, **values), outputs_of(after, **values))


def test_case_5_counted_by_the_steps() -> None:
    _, xs = power(N)
    assert trimmed_to(graph_of(xs[N - 1]))[1] == ["min(1,n)+1"]


def test_case_5_twin_further_from_the_end() -> None:
    """``xs[n-2]`` of one row is its only row, ``xs[-2]`` an error."""
    _, xs = power(N)
    assert unchanged(graph_of(xs[N - 2])) == []


def test_case_6_lengths() -> None:
    start = pt.dvector("start")
    ys = scan(lambda a: a * 0.9, outputs_info=[start], n_steps=N)
    graph = graph_of(ys.shape[0] * ys[-1], pt.zeros_like(ys), ys.shape)
    after, _ = optimized(graph, "trim-steps,save-mem")
    assert rows_of(after) == ["min(1,n)+1"]
    check(graph, after)


def test_case_6_twin_while_loop() -> None:
    x = pt.dscalar("x")
    xs = scan(lambda y: (y * 1.5, until(y > 3)), outputs_info=[x], n_steps=N)
    unchanged(graph_of(xs.shape[0], xs[-1]))


@pytest.mark.parametrize("steps", [N, 30])
def test_case_7_start_joined_again(steps) -> None:
    x, xs = power(steps)
    joined = pt.concatenate([x[None], xs])
    assert trimmed_to(graph_of(joined[-1]))[1] == [f"{'min(1,n)+1' if steps is N else 2}"]
    assert trimmed_to(graph_of(joined[-3:]))[1] == [f"{'min(2,n)+1' if steps is N else 3}"]


def test_case_7_twin_another_start() -> None:
    x, xs = power(N)
    assert unchanged(graph_of(pt.concatenate([x[None] * 2, xs])[-1])) == []


def test_case_8_first_and_last() -> None:
    start = pt.dvector("start")
    ys, zs = scan(
        lambda t, a: [a * 0.9 + t, a * t],
        sequences=[pt.arange(100.0)],
        outputs_info=[start, None],
    )
    graph = graph_of(ys[0, 1], zs[0] + ys[-1], zs[-2])
    steps, kept, remarks = trimmed_to(graph)
    assert (steps, kept) == ("100", ["2", "2"])
    assert len(remarks) == 1
    assert remarks[0].endswith("apart from the loop")


def test_case_8_twin_may_run_no_step() -> None:
    _, xs = power(N)
    (remark,) = unchanged(graph_of(xs[0], xs[-1]))
    assert remark.endswith("n steps may be none")


def test_case_8_twin_loop_inside() -> None:
    x = pt.dscalar("x")

    def step(y):
        return scan(lambda z: z * 1.1, outputs_info=[y], n_steps=3, name="inner")

    ys = scan(lambda y: step(y).sum(), outputs_info=[x], n_steps=100, name="outer")
    (remark,) = unchanged(graph_of(ys[0], ys[-1]))
    assert remark.endswith("a step has a loop or a graph inside")


def test_case_8_twin_random_state() -> None:
    rng = pt.random.type.random_generator_type("rng")

    def step(y, generator):
        generator, draw = pt.random.normal(rng=generator).owner.outputs
        return [y + draw, generator]

    ys, _ = scan(step, outputs_info=[pt.dscalar("x"), rng], n_steps=100)
    _, remarks = optimized(graph_of(ys[0], ys[-1]), "trim-steps")
    assert remarks[0].endswith("it has states without a trace")


def test_case_8_twin_few_steps_and_other_rows() -> None:
    _, xs = power(30)
    assert unchanged(graph_of(xs[0], xs[-1])) == []
    _, xs = power(300)
    assert unchanged(graph_of(xs[1], xs[-1])) == []


def test_twin_mit_mot() -> None:
    x, xs = power(100)
    after, _ = optimized(graph_of(pt.grad(xs.sum(), x)), "trim-steps")
    counts = {view.name: steps_of(view) for view in scan_views(after.fgraph)}
    assert counts["grad_of_square"] in ("100", "99+1")


def test_twin_untraced_state_that_is_read() -> None:
    rng = pt.random.type.random_generator_type("rng")

    def step(y, generator):
        generator, draw = pt.random.normal(rng=generator).owner.outputs
        return [y + draw, generator]

    ys, last = scan(step, outputs_info=[pt.dscalar("x"), rng], n_steps=100)
    after, remarks = optimized(graph_of(ys[5], last), "trim-steps")
    assert steps_of(only_scan(after.fgraph)) == "100"
    assert "a state without a trace is read" in remarks[0]


@pytest.mark.parametrize("read", [lambda xs: xs[2], lambda xs: xs[:-1]])
def test_twin_sequence_that_may_be_too_short(read) -> None:
    s, x = pt.dvector("s"), pt.dscalar("x")
    xs = scan(lambda a, y: y + a, sequences=[s], outputs_info=[x], n_steps=N)
    after, remarks = optimized(graph_of(read(xs)), "trim-steps")
    assert steps_of(only_scan(after.fgraph)) == "n"
    assert "one of its sequences may be too short" in remarks[0]


def test_twin_trimmed_before() -> None:
    _, xs = power(100)
    after, _ = optimized(graph_of(xs[-3:-1]), "save-mem")
    again, _ = optimized(after, "trim-steps")
    assert steps_of(only_scan(again.fgraph)) == "100"
    check(after, again)


@pytest.mark.parametrize("read", [lambda xs: xs[-20:-10], lambda xs: xs[50], lambda xs: xs[:4]])
@pytest.mark.parametrize("steps", [N, 60])
def test_blockwise_scan(read, steps) -> None:
    x, xs = power(steps)
    graph = graph_of(vectorize_graph(read(xs), {x: pt.dvector("batch")}))
    after, _ = optimized(graph, "trim-steps")
    assert steps_of(only_scan(after.fgraph)) != str(steps)
    both, _ = optimized(graph, "trim-steps,save-mem")
    check(graph, after, both, counts=(0, 1, 5, 30, 60))


def test_inside_a_loop() -> None:
    def outer(y):
        return scan(lambda z: z * 1.1, outputs_info=[y], n_steps=30, name="inner")[-3]

    graph = graph_of(scan(outer, outputs_info=[pt.dscalar("x")], n_steps=N, name="outer"))
    after, remarks = optimized(graph, "trim-steps")
    assert remarks[0] == "passed outer/inner: runs 28 steps of 30: no more are read"
    check(graph, after)


@pytest.mark.parametrize("steps", [5, N])
@pytest.mark.parametrize("index", [slice(None, None, 0), slice(1, 3, 0), slice(0, 2, 0)])
@pytest.mark.parametrize("passes", ["default", "grad", "trim-steps", "clean-slices"])
def test_a_slice_that_is_an_error_stays_one(index: slice, steps: Any, passes: str) -> None:
    h = pt.dscalar("h")
    out = scan(lambda h: 2 * h, outputs_info=[h], n_steps=steps)[index].sum()
    graph = graph_of(out + 0.0 * N)
    work, _ = optimized(graph, passes)
    for one in (graph, work):
        assert "slice step cannot be zero" in str(outputs_of(one, h=1.0, n=5))
