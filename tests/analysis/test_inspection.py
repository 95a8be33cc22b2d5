"""What is told of each loop of a graph: lengths, memory, digests, entries of arrays."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

from scanopt_cli.analysis.inspection import Entry, Inspection, ScanReport, inspect_graph
from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.equivalence.hashing import hash_graph
from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.pipeline.optimizing import optimize
from support.graph_building import graph_of, power, scan
from support.zoo.model import outputs_of
from support.zoo.models import MODELS

ZERO = pt.constant(0.0, dtype="float64")


def inspected(*outputs: Any) -> dict[str, ScanReport]:
    return {scan.title: scan for scan in inspect_graph(graph_of(*outputs).fgraph).scans}


def running(row: Any, name: str) -> Any:
    return scan(lambda a, s: s + a, sequences=[row], outputs_info=[ZERO], name=name)[-1]


def test_lengths_in_bodies_are_told_by_those_outside() -> None:
    """Bodies share variables: that of ``x`` says nothing of the row of ``y``."""
    x, y = pt.dmatrix("x"), pt.dmatrix("y")
    found = inspected(
        scan(lambda row: running(row, "inner"), sequences=[x], name="over_x"),
        scan(lambda row: running(row, "inner"), sequences=[y], name="over_y"),
    )
    for name in "xy":
        inner = found[f"over_{name}/inner"]
        assert inner.steps == f"{name}.shape[1]"
        assert inner.bytes == f"8*{name}.shape[1]+8"
        assert inner.slots[1].fed_by == f"AllocEmpty({name}.shape[1]+1)[:1].set(0.0)"
    assert found["over_x/inner"].digest == found["over_y/inner"].digest
    assert found["over_x/inner"].occurrences == 2


def test_lengths_are_told_through_several_loops() -> None:
    x = pt.dtensor3("x")

    def middle(matrix: Any) -> Any:
        return scan(lambda row: running(row, "inner"), sequences=[matrix], name="middle").sum()

    found = inspected(scan(middle, sequences=[x], name="outer"))
    assert found["outer/middle"].steps == "x.shape[1]"
    assert found["outer/middle/inner"].steps == "x.shape[2]"


def test_trip_counts_that_a_loop_hands_on_are_told() -> None:
    n, x = pt.lscalar("n"), pt.dvector("x")
    found = inspected(
        scan(
            lambda a, n: scan(lambda s: s * a, outputs_info=[a], n_steps=n, name="inner")[-1],
            sequences=[x],
            non_sequences=[n],
            name="outer",
        )
    )
    assert found["outer/inner"].steps == "n"


def test_a_number_of_each_step_is_called_as_the_step_calls_it() -> None:
    n, x = pt.lvector("n"), pt.dscalar("x")
    found = inspected(
        scan(
            lambda n, x: scan(lambda s: s * x, outputs_info=[x], n_steps=n, name="inner")[-1],
            sequences=[n],
            non_sequences=[x],
            name="outer",
        )
    )
    assert found["outer/inner"].steps == "n[t]"


def test_lengths_of_what_a_step_computes_are_not_told_by_another_loop() -> None:
    """The positive entries of a row are so many as nobody knows, and not as many as a row has."""
    x = pt.dmatrix("x")
    found = inspected(scan(lambda row: running(row[row > 0], "inner"), sequences=[x], name="outer"))
    assert "?" in found["outer/inner"].steps


def test_lengths_in_a_wrapped_graph_are_not_those_of_the_loop_around() -> None:
    """Its inputs may be the very variables that the body of the loop has."""
    v, x = pt.dvector("v"), pt.dmatrix("x")
    wrapped = OpFromGraph([v], [running(v, "inner")], name="wrapped")
    found = inspected(
        scan(lambda row, x: wrapped(x[0][1:]) + row[0], sequences=[x], non_sequences=[x])
    )
    (inner,) = [scan for title, scan in found.items() if title.endswith("inner")]
    assert "x.shape" not in inner.steps
    assert inner.depth == 1


def test_shapes_and_memory_are_those_of_rows() -> None:
    x = pt.tensor("x", shape=(None, 3), dtype="float32")
    start = pt.zeros((3,), dtype="float32")
    ys, picked = scan(lambda row, y: [y + row, row[0]], sequences=[x], outputs_info=[start, None])
    (found,) = inspected(ys, picked).values()
    slots = {slot.kind: slot for slot in found.slots}
    assert (slots["seq"].dtype, slots["seq"].shape, slots["seq"].bytes) == ("float32", ("3",), None)
    assert (slots["sit_sot"].shape, slots["sit_sot"].bytes) == (("3",), "12*x.shape[0]+12")
    assert (slots["nit_sot"].shape, slots["nit_sot"].bytes) == ((), "4*x.shape[0]")
    assert found.bytes == "16*x.shape[0]+12"


def test_a_trace_that_nobody_reads_takes_no_memory() -> None:
    _, xs = power(pt.lscalar("n"))
    graph = optimize(graph_of(xs[-1]), "loop").graph
    (found,) = inspect_graph(graph.fgraph).scans
    assert (found.bytes, found.slots[0].rows) == ("0", None)


@pytest.mark.parametrize("model", MODELS[::5], ids=str)
def test_all_memory_is_that_of_the_statistics(model: Any) -> None:
    """Of graphs without nested loops, of which the inspection knows more lengths."""
    for order in range(1 + bool(model.wrt)):
        graph = as_graph(outputs_of(model, order))
        found = inspect_graph(graph.fgraph)
        if not any(scan.depth for scan in found.scans):
            assert found.bytes == statistics(graph.fgraph).buffer_bytes


def test_digests_are_those_of_hash() -> None:
    x = pt.dmatrix("x")
    graph = graph_of(scan(lambda row: running(row, "inner"), sequences=[x], name="outer"))
    digests = {
        name: b.digest for b in hash_graph(graph, inner=True).inner or () for name in b.names
    }
    found = inspect_graph(graph.fgraph).scans
    assert {scan.name: scan.digest for scan in found} == digests


def test_equal_loops_are_told_apart_by_what_feeds_them() -> None:
    x, y = pt.dvector("x"), pt.dvector("y")
    found = inspected(*(running(v, "loop") for v in (x, x, y))).values()
    assert len({scan.digest for scan in found}) == 1
    assert len({scan.fed_digest for scan in found}) == 2
    assert {scan.occurrences for scan in found} == {3}


def small_arrays(*, is_traced: bool) -> Graph:
    x, w = pt.tensor("x", shape=(None, 2)), pt.tensor("w", shape=(2, 2))
    h0, p0 = pt.tensor("h0", shape=(2,)), pt.tensor("p0", shape=(2, 2))
    h, p = scan(
        lambda x, h, p, w: [pt.tanh(w @ h + x), w @ p @ w.T],
        sequences=[x],
        outputs_info=[h0, p0],
        non_sequences=[w],
    )
    return graph_of(h.sum() + p.sum() if is_traced else h[-1].sum() + p[-1].sum())


def entries(found: Inspection) -> dict[str, Entry | None]:
    (loop,) = found.scans
    return {slot.name: slot.entry for slot in loop.slots if slot.kind == "state"}


def test_entries_of_an_array_that_was_split_say_so() -> None:
    graph = optimize(small_arrays(is_traced=False), "loop").graph
    assert entries(inspect_graph(graph.fgraph)) == {
        **{f"h0[{i}]": Entry("h0", (i,)) for i in range(2)},
        **{f"p0[{i}, {j}]": Entry("p0", (i, j)) for i in range(2) for j in range(2)},
    }


def test_an_array_that_is_traced_stays_beside_its_entries() -> None:
    graph = optimize(small_arrays(is_traced=True), "loop").graph
    found = entries(inspect_graph(graph.fgraph))
    assert found["h0"] is None
    assert found["h0[0]"] == Entry("h0", (0,))


def test_labels_of_slots_are_no_entries() -> None:
    """``seq[0]`` is what a slot without a name is called."""
    (found,) = inspected(scan(lambda a: pt.exp(a), sequences=[pt.dvector()])).values()
    assert found.slots[0].name == "seq[0]"
    assert found.slots[0].entry is None


ON_NUMBERS = ("GARCH(1,1)", "SIR, Euler", "Newton, until it stands", "stochastic volatility")


@pytest.mark.deep
@pytest.mark.parametrize("name", ON_NUMBERS)
def test_steps_on_numbers_alone_stay_so_in_the_loops_that_enabled_makes(name: str) -> None:
    """So what the report says of `enabled()` is so."""
    (model,) = [model for model in MODELS if model.name == name]
    graph = as_graph(outputs_of(model, 1))
    before = inspect_graph(graph.fgraph).scans
    assert all(scan.step.is_on_numbers for scan in before)
    after = inspect_graph(optimize(graph, "loop").graph.fgraph).scans
    assert {scan.kind for scan in after} == {"TracedLoop"}
    assert all(scan.step.is_on_numbers for scan in after)
