"""trim-steps: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.analysis.buffers import trimmed
from scanopt_cli.analysis.lengths import Lengths
from support.evaluating import assert_same_outcomes
from support.graph_building import (
    graph_of,
    only_scan,
    optimized,
    outputs_of,
    power,
    scan,
    scan_views,
)
from support.step_counts import check, noisy_walk, steps_of, trimmed_to, unchanged

N = pt.lscalar("n")
LESS = "min(n,max(n-{k},0))"
PASS = "normalize-reads,trim-steps"


def test_case_1_first_steps() -> None:
    _, xs = power(N)
    assert trimmed_to(graph_of(xs[2]), PASS)[0] == "min(3,n)"


def test_case_1_while_loop() -> None:
    x = pt.dscalar("x")
    xs = scan(lambda y: (y * 1.5, until(y > 3)), outputs_info=[x], n_steps=20)
    assert trimmed_to(graph_of(xs[2]), PASS)[0] == "3"


FIRST_STEPS: list[tuple[Any, str]] = [
    (lambda xs: xs[0], "min(1,n)"),
    (lambda xs: xs[2], "min(3,n)"),
    (lambda xs: xs[:4], "min(4,n)"),
    (lambda xs: xs[1:3], "min(3,n)"),
    (lambda xs: xs[0:4:2], "min(4,n)"),
    (lambda xs: xs[1] + xs[2], "min(3,n)"),
    (lambda xs: xs[2::-1], "min(3,n)"),
    (lambda xs: xs[::-1][-3:], "min(3,n)"),
    (lambda xs: xs[pt.as_tensor([0, 2])], "min(3,n)"),
]


@pytest.mark.parametrize(("read", "steps"), FIRST_STEPS)
def test_case_1_first_steps_read_so(read, steps: str) -> None:
    _, xs = power(N)
    graph = graph_of(read(xs))
    after, _ = optimized(graph, PASS)
    assert str(Lengths().value_of(only_scan(after.fgraph).n_steps)) == steps
    assert trimmed(only_scan(after.fgraph)) == []
    check(graph, after)


def test_case_1_while_loop_of_any_number_of_steps() -> None:
    x = pt.dscalar("x")
    xs = scan(lambda y: (y * 1.5, until(y > 3)), outputs_info=[x], n_steps=N)
    graph = graph_of(xs[2])
    after, _ = optimized(graph, PASS)
    assert str(Lengths().value_of(only_scan(after.fgraph).n_steps)) == "min(3,n)"
    check(graph, after)


def test_case_1_twin_untraced_state_that_is_read() -> None:
    """The generator after all steps is not the generator after the first."""
    rng = pt.random.type.random_generator_type("rng")

    def step(y, generator):
        generator, draw = pt.random.normal(rng=generator).owner.outputs
        return [y + draw, generator]

    ys, last = scan(step, outputs_info=[pt.dscalar("x"), rng], n_steps=N)
    after, _ = optimized(graph_of(ys[0], last), PASS)
    assert str(Lengths().value_of(only_scan(after.fgraph).n_steps)) == "n"


def test_case_1_twin_reader_of_the_end() -> None:
    _, xs = power(N)
    after, _ = optimized(graph_of(xs[0], xs[-1]), PASS)
    assert str(Lengths().value_of(only_scan(after.fgraph).n_steps)) == "n"


def test_case_1_twin_sequence_that_may_be_too_short() -> None:
    s, x = pt.dvector("s"), pt.dscalar("x")
    xs = scan(lambda a, y: y + a, sequences=[s], outputs_info=[x], n_steps=N)
    graph = graph_of(xs[2])
    after, remarks = optimized(graph, PASS)
    assert "one of its sequences may be too short" in remarks[0]
    values = {"s": [1.0, 2.0, 3.0], "x": 0.0, "n": 5}
    assert_same_outcomes(outputs_of(graph, **values), outputs_of(after, **values))


def test_case_1_runs_one_step_where_none_is_read() -> None:
    rows = pt.dmatrix("rows")
    graph = graph_of(scan(lambda row: row * 2, sequences=[rows])[:0])
    after, _ = optimized(graph, PASS)
    assert outputs_of(after, rows=[[1.0, 2.0]])[0].shape == (0, 2)


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
    found = trimmed_to(graph_of(read(xs)), PASS)
    assert (found[0], found[1][0]) == (steps, kept)


def test_case_2_nit_sot_and_other_axes() -> None:
    start = pt.dvector("start")
    ys, zs = scan(lambda a: [a * 0.9, a + 1], outputs_info=[start, None], n_steps=100)
    assert trimmed_to(graph_of(zs[-20:-10, 0], ys[85, 1:]), PASS)[:2] == ("90", ["6", "10"])


def test_case_2_twin_reader_out_of_bounds() -> None:
    _, xs = power(4)
    (remark,) = unchanged(graph_of(xs[4]), PASS)
    assert remark.endswith("all 4 steps: a reader is out of bounds")


def test_case_2_twin_symbolic_index() -> None:
    _, xs = power(40)
    assert unchanged(graph_of(xs[-N:], xs[3]), PASS) == []


def test_case_2_twin_no_steps() -> None:
    _, xs = power(0)
    assert unchanged(graph_of(xs[:3], xs[-3:-1]), PASS) == []


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
    assert trimmed_to(graph_of(read(xs)), PASS)[:2] == (LESS.format(k=less), [kept])


@pytest.mark.parametrize("read", [lambda xs: xs[-10:-20], lambda xs: xs[-2:], lambda xs: xs[:-1:]])
def test_case_3_twin_one_reader_of_the_last_row(read) -> None:
    _, xs = power(N)
    assert unchanged(graph_of(read(xs), xs[-1]), PASS) == []


def test_case_3_twin_trace_whose_rows_would_lose_their_shape() -> None:
    start = pt.dvector("start")
    _, zs = scan(lambda a: [a * 0.9, a + 1], outputs_info=[start, None], n_steps=N)
    (remark,) = unchanged(graph_of(zs[:-1]), PASS)
    assert "PyTensor loses the shape of a trace of no steps" in remark
    assert trimmed_to(graph_of(zs[-2]), PASS)[0] == LESS.format(k=1)


@pytest.mark.parametrize("steps", [N, 8])
def test_case_4_gradient_of_the_last_state(steps) -> None:
    """PyTensor 3.3.7 runs the forward loop once more than is read."""
    x, xs = power(steps)
    graph = graph_of(pt.grad(xs[-1], x))
    after, _ = optimized(graph, "simplify{outer=true},normalize-reads,trim-steps")
    counts = {view.name: steps_of(view) for view in scan_views(after.fgraph)}
    assert counts["square"].startswith("7" if steps == 8 else "min(n,")
    for n in (1, 2, 5):
        values = {"x": 1.01} | ({} if steps == 8 else {"n": n})
        assert_same_outcomes(outputs_of(graph, **values), outputs_of(after, **values))


def test_twin_mit_mot() -> None:
    x, xs = power(100)
    after, _ = optimized(graph_of(pt.grad(xs.sum(), x)), "trim-steps")
    counts = {view.name: steps_of(view) for view in scan_views(after.fgraph)}
    assert counts["grad_of_square"] in ("100", "99+1")


def test_twin_untraced_state_that_is_read() -> None:
    ys, last = noisy_walk()
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
    both, _ = optimized(graph, "normalize-reads,trim-steps,save-mem")
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
