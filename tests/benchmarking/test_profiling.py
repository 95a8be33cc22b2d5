"""A call is split by loop and by operation, as far as the mode lets it."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.benchmarking.profiling import profiled
from scanopt_cli.ir.graph import from_io
from scanopt_cli.pipeline.optimizing import optimize
from support.graph_building import scan

M = np.ones((4, 25)) / 30
STEPS, INNER = M.shape


def nested(*, lowered: bool) -> FunctionGraph:
    """Sums of rows in a loop of its own, in a loop over rows; and much work beside it."""
    m, h = pt.dmatrix("m"), pt.dscalar("h")

    def row(r, h):  # type: ignore[no-untyped-def]
        return scan(lambda a, y: pt.tanh(y * a), sequences=[r], outputs_info=[h], name="row")[-1]

    rows = scan(row, sequences=[m], outputs_info=[h], name="rows")
    graph = from_io([m, h], [rows.sum() + pt.cumsum(pt.alloc(h, 4_000))[-1]])
    return optimize(graph, passes="scan-to-loop").graph.fgraph if lowered else graph.fgraph


@pytest.mark.parametrize("lowered", [False, True])
def test_by_loop_and_operation(lowered: bool) -> None:
    found = profiled(nested(lowered=lowered), "vm", [M, np.asarray(0.5)], 0.1)
    outer, inner = found["loops"]
    assert (outer["title"], outer["depth"], outer["steps"]) == ("rows", 0, STEPS)
    assert (inner["title"], inner["depth"], inner["steps"]) == ("rows/row", 1, STEPS * INNER)
    assert outer["seconds"] >= inner["seconds"] > 0
    assert 0 <= inner["overhead"] <= inner["seconds"]
    by_place = {(one["name"], one["within"]): one for one in found["operations"]}
    tanh = by_place["Tanh", "rows/row"]
    assert tanh["calls"] == STEPS * INNER
    assert by_place["Cumsum{axis=0}", None]["calls"] == 1
    seconds = [one["seconds"] for one in found["operations"]]
    assert seconds == sorted(seconds, reverse=True)
    parts = sum(one["seconds"] for one in found["operations"] if one["within"] is None)
    assert parts + outer["seconds"] + found["rest"] == pytest.approx(found["seconds"])


def test_a_graph_without_loops() -> None:
    x = pt.dvector("x")
    found = profiled(from_io([x], [pt.exp(x).sum()]).fgraph, "vm", [np.ones(3)], 0.01)
    assert not found["loops"]
    assert {one["name"] for one in found["operations"]} == {"Exp", "Sum{axes=None}"}


@pytest.mark.deep
def test_loops_alone_where_a_mode_makes_one_function() -> None:
    x, h, w = pt.dvector("x"), pt.dscalar("h"), pt.dmatrix("w")
    few = scan(lambda a, y: pt.tanh(y * a), sequences=[x], outputs_info=[h], name="few")[-1]
    many = scan(
        lambda y, w: pt.tanh(w @ y), outputs_info=[x], non_sequences=[w], n_steps=2_000, name="many"
    )[-1]
    graph = from_io([x, h, w], [few + many.sum()])
    values = [np.ones(40), np.asarray(0.5), np.eye(40)]
    found = profiled(graph.fgraph, "numba", values, 0.2)
    seconds = {one["title"]: one["seconds"] for one in found["loops"]}
    assert set(seconds) == {"few", "many"}
    assert seconds["many"] > 10 * seconds["few"]
    assert not found["operations"]
    assert "one function of all operations" in found["note"]
    assert "not all loops" not in found["note"]
