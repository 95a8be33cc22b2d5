"""save-mem: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.analysis.buffers import trimmed
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.slots import TRACED
from support.evaluating import assert_same_outcomes
from support.graph_building import graph_of, only_scan, optimized, outputs_of, power, scan

N = pt.lscalar("n")


def _rows(graph: Graph) -> list[str]:
    view = only_scan(graph.fgraph)
    lengths = Lengths(view.n_steps)
    return [str(rows(view, slot, lengths)) for slot in view.of_kind(*TRACED)]


def _check(graph: Graph, after: Graph, counts: tuple[int, ...] = (0, 1, 2, 3, 9)) -> None:
    """Same values, and errors in the same cases, for few and for many steps."""
    for n in counts:
        values = {"n": n, "x": 1.01, "start": [1.0, 2.0], "batch": [1.1, 0.9]}
        assert_same_outcomes(outputs_of(graph, **values), outputs_of(after, **values))


LAST_ROWS: list[tuple[Any, str]] = [
    (lambda xs: xs[-1], "min(1,n)+1"),
    (lambda xs: xs[-3:], "min(3,n)+1"),
    (lambda xs: xs[-3:-1], "min(3,n)+1"),
    (lambda xs: xs[-1:-4:-1], "min(3,n)+1"),
    (lambda xs: xs[:-3:-1], "min(2,n)+1"),
    (lambda xs: xs[::-1][:3], "min(3,n)+1"),
    (lambda xs: xs[::-1][2], "min(3,n)+1"),
    (lambda xs: xs[pt.as_tensor([-1, -3])], "min(3,n)+1"),
    (lambda xs: xs[-4::2], "min(4,n)+1"),
    (lambda xs: xs[-2:][::-1], "min(2,n)+1"),
    (lambda xs: xs[-1] + xs[-3], "min(3,n)+1"),
]


@pytest.mark.parametrize(("read", "kept"), LAST_ROWS)
def test_case_1_last_rows(read, kept: str) -> None:
    _, xs = power(N)
    graph = graph_of(read(xs))
    after, remarks = optimized(graph, "save-mem")
    assert _rows(after) == [kept]
    assert len(remarks) == 1
    _check(graph, after)


@pytest.mark.parametrize(
    "read", [lambda xs: xs[-1:, 0], lambda xs: xs[-2:, 1], lambda xs: xs[-1, 0]]
)
@pytest.mark.parametrize("n_steps", [N, 9])
def test_case_1_last_rows_of_one_column(read, n_steps) -> None:
    xs = scan(lambda x: x * [2.0, 3.0], outputs_info=[pt.dvector("start")], n_steps=n_steps)
    graph = graph_of(read(xs))
    after, remarks = optimized(graph, "save-mem")
    assert len(remarks) == 1
    _check(graph, after)


def test_case_1_a_slice_of_the_last_row_may_be_empty() -> None:
    start = pt.dscalar("x")
    _, doubled = scan(lambda x: [x * 1.5, x * 2], outputs_info=[start, None], n_steps=N)
    graph = graph_of(doubled[-1:])
    after, remarks = optimized(graph, "save-mem")
    assert remarks[-1] == "passed scan_fn: keeps 1 row of `nit_sot[0]`: read as [-1:]"
    _check(graph, after)


def test_case_1_constant_steps() -> None:
    _, xs = power(40)
    after, _ = optimized(graph_of(xs[-1]), "save-mem")
    assert _rows(after) == ["2"]


def test_case_1_nit_sot_and_mit_sot() -> None:
    start = pt.dvector("start")
    ys, zs = scan(
        lambda a, b: [a + b, a * b],
        outputs_info=[{"initial": start, "taps": [-2, -1]}, None],
        n_steps=N,
    )
    graph = graph_of(ys[-1], zs[-2:])
    after, _ = optimized(graph, "save-mem")
    assert _rows(after)[1] == "min(2,n)"
    _check(graph, after)


@pytest.mark.parametrize("limit", [0.5, 3.0, 1e9])
def test_case_1_while_loop_that_stops_early_or_not(limit: float) -> None:
    x = pt.dscalar("x")
    xs = scan(lambda y: (y * 1.5, until(y > limit)), outputs_info=[x], n_steps=N, name="grow")
    graph = graph_of(xs[-1], xs[-1:])
    after, _ = optimized(graph, "save-mem")
    assert _rows(after) == ["min(1,n)+1"]
    _check(graph, after)


def test_case_1_twin_while_loop_of_which_two_steps_are_read() -> None:
    """PyTensor cuts such a buffer to nothing if the loop stops after one step."""
    x = pt.dscalar("x")
    xs = scan(lambda y: (y * 1.5, until(y > 0.5)), outputs_info=[x], n_steps=N, name="grow")
    graph = graph_of(xs[-2:])
    after, remarks = optimized(graph, "save-mem")
    assert remarks == ["missed grow: keeps all steps of `x`: a while loop can keep one step, not 2"]
    _check(graph, after)


KEPT: list[Any] = [
    lambda xs: xs,
    lambda xs: xs[::2],
    lambda xs: xs[::-1],
    lambda xs: xs[:-1],
    lambda xs: xs.sum(),
    lambda xs: xs.shape[0],
    lambda xs: xs[-N],
    lambda xs: xs[::-1][1:],
    lambda xs: xs[pt.as_tensor([0, -1])],
    lambda xs: pt.stack([xs[-1], xs.max()]),
]


@pytest.mark.parametrize("read", KEPT)
def test_case_1_twin_reads_that_may_look_anywhere(read) -> None:
    _, xs = power(N)
    graph = graph_of(read(xs))
    after, remarks = optimized(graph, "save-mem")
    assert _rows(after) == ["n+1"]
    assert all(remark.startswith("analysis square: keeps all steps of") for remark in remarks)
    assert remarks


def test_case_1_twin_one_reader_of_two() -> None:
    _, xs = power(N)
    after, _ = optimized(graph_of(xs[-1], xs[0]), "save-mem")
    assert _rows(after) == ["n+1"]


def test_case_1_twin_no_more_steps_than_are_read() -> None:
    _, xs = power(3)
    assert optimized(graph_of(xs[-5:]), "save-mem")[1] == []


def test_case_2_state_that_only_the_loop_reads() -> None:
    x = pt.dscalar("x")
    _, zs = scan(lambda y, z: [y * 2, z + y], outputs_info=[x, x], n_steps=N)
    graph = graph_of(zs)
    after, _ = optimized(graph, "save-mem")
    assert _rows(after) == ["min(1,n)+1", "n+1"]
    _check(graph, after)


def test_without_prealloc_no_row_more_than_the_taps_reach() -> None:
    x = pt.dscalar("x")
    _, zs = scan(lambda y, z: [y * 2, z + y], outputs_info=[x, x], n_steps=N)
    after, _ = optimized(graph_of(zs), "save-mem{prealloc=false}")
    assert _rows(after) == ["1", "n+1"]


def test_error_of_no_steps_stays() -> None:
    _, xs = power(N)
    after, _ = optimized(graph_of(xs[-1]), "save-mem{prealloc=false}")
    (outcome,) = outputs_of(after, n=0, x=1.0)
    assert isinstance(outcome, IndexError)


def test_blockwise_scan() -> None:
    x, xs = power(N)
    batch = pt.dvector("batch")
    graph = graph_of(vectorize_graph(xs[-1], {x: batch}))
    after, _ = optimized(graph, "save-mem")
    assert _rows(after) == ["min(1,n)+1"]
    _check(graph, after)


def test_blockwise_twin_step_count_of_each_entry() -> None:
    _, xs = power(N)
    counts = pt.lvector("counts")
    _, remarks = optimized(graph_of(vectorize_graph(xs[-1], {N: counts})), "save-mem")
    assert all(remark.startswith("missed") for remark in remarks)


def test_inside_a_loop() -> None:
    def outer(y):
        return scan(lambda z: z * 1.1, outputs_info=[y], n_steps=30, name="inner")[-1]

    x = pt.dscalar("x")
    graph = graph_of(scan(outer, outputs_info=[x], n_steps=N, name="outer"))
    after, _ = optimized(graph, "save-mem")
    assert (statistics(graph.fgraph).buffers, statistics(after.fgraph).buffers) == ("n+32", "n+3")
    _check(graph, after)


def test_trimmed_scan_is_known_as_trimmed() -> None:
    _, xs = power(N)
    after, _ = optimized(graph_of(xs[-1]), "save-mem")
    assert [slot.label for slot in trimmed(only_scan(after.fgraph))] == ["sit_sot[0]"]


@pytest.mark.parametrize(
    ("read", "a"),
    [
        (lambda xs: xs[-1], -5),
        (lambda xs: xs[-1:], -5),
        (lambda xs: xs[:3], -3),
        (lambda xs: xs[-3:], -3),
        (lambda xs: xs[2], -3),
    ],
)
def test_scalars_in_the_step_count_may_be_negative(read, a: int) -> None:
    """A loop of ``a + 5`` steps runs for a negative ``a`` too."""
    x, count = pt.dscalar("x"), pt.lscalar("a")
    xs = scan(lambda y: y * 2 + 1, outputs_info=[x], n_steps=count + 5)
    graph = graph_of(read(xs))
    after, _ = optimized(graph, "save-mem")
    values = {"a": a, "x": 1.0}
    assert_same_outcomes(outputs_of(graph, **values), outputs_of(after, **values))


def test_step_counts_of_narrow_integers_wrap() -> None:
    u, x = pt.scalar("u", dtype="uint8"), pt.dscalar("x")
    three = pt.constant(3, dtype="uint8")
    graph = graph_of(scan(lambda y: y * 2, outputs_info=[x], n_steps=u + three)[:3])
    after, _ = optimized(graph, "save-mem")
    assert_same_outcomes(outputs_of(graph, u=254, x=1.0), outputs_of(after, u=254, x=1.0))


def test_many_minima_are_compared_in_bounded_time() -> None:
    parts = [
        pt.minimum(pt.dvector(f"v{k}").shape[0], pt.dvector(f"w{k}").shape[0]) for k in range(12)
    ]
    x = pt.dscalar("x")
    xs = scan(lambda y: y * 2, outputs_info=[x], n_steps=sum(parts))
    after, _ = optimized(graph_of(xs[-1]), "save-mem")
    assert _rows(after)[0].startswith("min(1,")
