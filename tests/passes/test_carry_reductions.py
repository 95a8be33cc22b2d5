"""carry-reductions: its legal case, and a twin that must not fire for each precondition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.slots import TRACED
from support.evaluating import assert_same_outcomes
from support.graph_building import graph_of, only_scan, optimized, outputs_of, power, scan

N = pt.lscalar("n")
REDUCTIONS = "normalize-reads,carry-reductions,save-mem"


def kept(graph: Graph) -> list[str]:
    view = only_scan(graph.fgraph)
    lengths = Lengths(view.n_steps)
    return [str(rows(view, slot, lengths)) for slot in view.of_kind(*TRACED)]


def check(graph: Graph, after: Graph) -> None:
    for n in (0, 1, 2, 7):
        values = {"n": n, "x": 0.7, "v": [0.5, -0.25, 2.0], "f": 0.3, "b": 3, "i": 5}
        assert_same_outcomes(outputs_of(graph, **values), outputs_of(after, **values))


def reduced(graph: Graph) -> list[str]:
    after, remarks = optimized(graph, REDUCTIONS)
    check(graph, after)
    assert any("step by step" in remark for remark in remarks), remarks
    return kept(after)


def unchanged(graph: Graph) -> list[str]:
    after, remarks = optimized(graph, REDUCTIONS)
    check(graph, after)
    assert not any("step by step" in remark for remark in remarks), remarks
    return remarks


READS: dict[str, Any] = {
    "sum": lambda xs: xs.sum(),
    "product": lambda xs: xs.prod(),
    "mean": lambda xs: xs.mean(),
    "of rows": lambda xs: xs.sum(axis=0),
    "with the last": lambda xs: xs.sum() + xs[-1].sum(),
    "two": lambda xs: xs.sum(axis=0) + xs.prod(axis=0),
}
ONES: dict[str, Any] = {"max": lambda xs: xs.max(), "min": lambda xs: xs.min()}
STARTS: dict[str, Variable] = {
    "float": pt.dscalar("x"),
    "float32": pt.fscalar("f"),
    "vector": pt.dvector("v"),
    "integer": pt.lscalar("i"),
    "byte": pt.bscalar("b"),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("read", READS)
def test_case_4_of_a_state(read: str, start: str) -> None:
    xs = scan(lambda y: -y, outputs_info=[STARTS[start]], n_steps=N)
    assert set(reduced(graph_of(READS[read](xs)))) == {"min(1,n)+1"}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("read", ONES)
def test_case_4_extremes_where_a_step_is_made(read: str, start: str) -> None:
    xs = scan(lambda y: -y, outputs_info=[STARTS[start]], n_steps=20)
    assert set(reduced(graph_of(ONES[read](xs)))) == {"2"}


def test_case_4_of_a_trace() -> None:
    _, zs = scan(lambda y: [y * 0.9, y + 1], outputs_info=[pt.dvector("v"), None], n_steps=20)
    assert reduced(graph_of(zs.sum(), zs.max(), zs[-1]))[-1] == "1"


def test_case_4_nan_is_kept() -> None:
    xs = scan(lambda y: y - 1, outputs_info=[pt.dscalar("x")], n_steps=20)
    graph = graph_of(
        pt.sqrt(xs).max(), scan(lambda y: pt.sqrt(y - 1), outputs_info=[xs[-1]], n_steps=3).max()
    )
    after, _ = optimized(graph, REDUCTIONS)
    got = outputs_of(after, x=10.0)
    assert_same_outcomes(outputs_of(graph, x=10.0), got)
    assert np.isnan(got).all()


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
def test_case_4_accumulates_in_the_same_type(dtype: str) -> None:
    """Sums of float32 carry float64, sums of bytes int64."""
    start = pt.scalar("x", dtype=dtype)
    xs = scan(lambda y: (y + 1).astype(dtype), outputs_info=[start], n_steps=N)
    graph = graph_of(xs.sum(), xs.sum(acc_dtype="float64", dtype=dtype), xs.prod(dtype="float64"))
    after, _ = optimized(graph, REDUCTIONS)
    for n in (0, 1, 6):
        got = outputs_of(after, n=n, x=100)
        assert_same_outcomes(outputs_of(graph, n=n, x=100), got)


def test_is_off_by_default() -> None:
    _, xs = power(N)
    _, remarks = optimized(graph_of(xs.sum()), "save-mem")
    assert remarks == ["analysis square: keeps all steps of `x`: read as an operand of Sum"]


def test_twin_another_reader() -> None:
    _, xs = power(N)
    unchanged(graph_of(xs.sum(), xs[::2]))


def test_twin_initial_rows_are_among_them() -> None:
    _, ys = power(N)
    unchanged(graph_of(ys.owner.inputs[0].sum()))


def test_twin_maximum_of_maybe_no_steps() -> None:
    _, xs = power(N)
    assert "the trip count n may be 0" in unchanged(graph_of(xs.max()))[0]


def test_twin_while_loop() -> None:
    x = pt.dscalar("x")
    xs = scan(lambda y: (y * 1.5, until(y > 3)), outputs_info=[x], n_steps=N)
    unchanged(graph_of(xs.sum()))


def test_twin_reduction_along_another_axis() -> None:
    xs = scan(lambda y: y * 0.9, outputs_info=[pt.dvector("v")], n_steps=N)
    unchanged(graph_of(xs.sum(axis=1)))


def test_twin_rows_without_a_shape_before_the_loop() -> None:
    _, zs = scan(lambda y: [y * 0.9, y + 1], outputs_info=[pt.dvector("v"), None], n_steps=N)
    assert "no shape before the loop" in unchanged(graph_of(zs.sum(axis=0)))[0]
    assert "costs more in the loop" in unchanged(graph_of(zs.prod()))[0]


def test_twin_truth_values() -> None:
    _, zs = scan(lambda y: [y * 0.9, y > 1], outputs_info=[pt.dscalar("x"), None], n_steps=N)
    assert "it is not of plain numbers" in unchanged(graph_of(zs.sum()))[0]


def test_twin_batched_loop() -> None:
    x, xs = power(N)
    graph = graph_of(vectorize_graph(xs.sum(), {x: pt.dvector("v")}))
    unchanged(graph)


def test_inside_a_loop() -> None:
    def outer(y):
        return scan(lambda z: z * 0.5, outputs_info=[y], n_steps=30, name="inner").sum()

    graph = graph_of(scan(outer, outputs_info=[pt.dscalar("x")], n_steps=N, name="outer"))
    after, remarks = optimized(graph, REDUCTIONS)
    assert remarks[0] == "passed outer/inner: takes the sum of `x` step by step"
    check(graph, after)
