"""remove-unused: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.ir.slots import SlotKind
from support.evaluating import assert_same_outcomes
from support.graph_building import (
    graph_of,
    labels,
    only_scan,
    optimized,
    outputs_of,
    power,
    scan,
    scan_views,
)

X = pt.dscalar("x")
N = pt.lscalar("n")
S = pt.dvector("s")


def test_case_1_nit_sot_that_nobody_reads() -> None:
    ys, _ = scan(lambda y: [y * 2, y + 1], outputs_info=[X, None], n_steps=N)
    after, remarks = optimized(graph_of(ys), "remove-unused")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]"]
    assert remarks == ["passed scan_fn: removed unused nit_sot `nit_sot[0]`"]


def test_case_1_twin_read_outside() -> None:
    ys, zs = scan(lambda y: [y * 2, y + 1], outputs_info=[X, None], n_steps=N)
    assert optimized(graph_of(ys, zs), "remove-unused")[1] == []


def test_case_2_states_of_every_kind() -> None:
    """A mit_sot, a sit_sot, an untraced state and, in the gradient, a mit_mot."""
    init = pt.dvector("init")
    rng = pt.random.type.random_generator_type("rng")

    def step(a, b, y, z, generator):
        generator, _ = pt.random.normal(rng=generator).owner.outputs
        return [a + b, y * 2, z + 1, generator]

    _, ys, _, _ = scan(
        step,
        outputs_info=[{"initial": init, "taps": [-2, -1]}, X, X * 3, rng],
        n_steps=N,
    )
    graph = graph_of(ys)
    before = statistics(graph.fgraph)
    assert (before.mit_sot, before.sit_sot, before.untraced) == (1, 2, 1)
    after, _ = optimized(graph, "remove-unused")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]"]


def test_case_2_mit_mot_whose_gradient_nobody_reads() -> None:
    ys, zs = scan(lambda y, z: [y * 2, z * z], outputs_info=[X, X * 2], n_steps=4)
    gradient = graph_of(pt.grad(ys[-1] + zs[-1], X)).fgraph
    *_, backward = scan_views(gradient)
    first, second = (slot.outer_output for slot in backward.of_kind(SlotKind.MIT_MOT))
    graph = graph_of(first)
    assert statistics(graph.fgraph).mit_mot == 2
    assert statistics(optimized(graph, "remove-unused")[0].fgraph).mit_mot == 1
    both = optimized(graph_of(first, second), "remove-unused")[0]
    assert statistics(both.fgraph).mit_mot == 2


def test_case_2_twin_state_read_by_another() -> None:
    ys, _ = scan(lambda y, z: [y + z, z * 2], outputs_info=[X, X], n_steps=N)
    assert optimized(graph_of(ys), "remove-unused")[1] == []


def test_case_3_states_that_feed_each_other_in_circles() -> None:
    ys, _, _ = scan(lambda y, z, w: [y * 2, w + 1, z - 1], outputs_info=[X, X, X], n_steps=N)
    after, _ = optimized(graph_of(ys), "remove-unused")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]"]


def test_case_3_twin_circle_with_one_reader() -> None:
    ys, _, _ = scan(lambda y, z, w: [y * z, w + 1, z - 1], outputs_info=[X, X, X], n_steps=N)
    assert optimized(graph_of(ys), "remove-unused")[1] == []


def test_case_4_inputs_of_what_was_removed() -> None:
    w = pt.dscalar("w")
    ys, _ = scan(
        lambda a, y, w: [y * 2, a * w],
        sequences=[S],
        outputs_info=[X, None],
        non_sequences=[w],
        n_steps=N,
    )
    after, remarks = optimized(graph_of(ys), "remove-unused")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]"]
    assert "passed scan_fn: removed unused seq `s`" in remarks


def test_case_4_twin_sequence_read_by_the_condition() -> None:
    ys = scan(lambda a, y: (y * 2, until(a > 1)), sequences=[S], outputs_info=[X], n_steps=N)
    assert optimized(graph_of(ys), "remove-unused")[1] == []


def test_inside_a_loop_then_outside() -> None:
    """What only a dead state of the inner loop needed is no longer passed to the outer one."""
    w = pt.dscalar("w")

    def outer(y, w):
        zs, _ = scan(
            lambda z, q, w: [z * 2, q * w], outputs_info=[y, y], non_sequences=[w], n_steps=3
        )
        return zs[-1]

    ys = scan(outer, outputs_info=[X], non_sequences=[w], n_steps=N, name="outer")
    after, remarks = optimized(graph_of(ys), "remove-unused")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]"]
    assert statistics(after.fgraph).sit_sot == 2
    assert any(remark.startswith("passed outer/scan_fn:") for remark in remarks)


def test_inside_op_from_graph() -> None:
    inner = pt.dscalar("inner")
    ys, _ = scan(lambda y: [y * 2, y + 1], outputs_info=[inner, None], n_steps=3)
    op = OpFromGraph([inner], [ys[-1]], name="layer")
    after, remarks = optimized(graph_of(op(X)), "remove-unused")
    assert statistics(after.fgraph).nit_sot == 0
    assert remarks == ["passed layer/scan_fn: removed unused nit_sot `nit_sot[0]`"]
    assert outputs_of(after, x=3.0)[0] == 24.0


def test_blockwise_scan() -> None:
    ys, _ = scan(lambda a, y: [y * a, y + 1], sequences=[S], outputs_info=[X, None], n_steps=N)
    batch = pt.dvector("batch")
    graph = graph_of(vectorize_graph(ys[-1], {X: batch}))
    after, _ = optimized(graph, "remove-unused")
    assert labels(only_scan(after.fgraph)) == ["seq[0]", "sit_sot[0]"]
    (result,) = outputs_of(after, batch=[1.0, 2.0], s=[2.0, 3.0, 4.0], n=2)
    assert result.tolist() == [6.0, 12.0]


def test_blockwise_twin_input_that_alone_carries_the_batch() -> None:
    """Dropping the only batched input would change the shape of the results."""
    x, _ = power()
    ys = scan(lambda a, y: y + 1, sequences=[S], outputs_info=[x], n_steps=3)
    batch = pt.dmatrix("batch")
    graph = graph_of(vectorize_graph(ys[-1], {S: batch}))
    after, remarks = optimized(graph, "remove-unused")
    assert labels(only_scan(after.fgraph)) == labels(only_scan(graph.fgraph))
    assert "it alone carries a batch dimension" in remarks[0]


def test_blockwise_twin_state_that_alone_carries_the_batch() -> None:
    """A state cannot stay without what it reads, so all stays."""
    states = scan(
        lambda a, y, z: [y * a, z + 1], sequences=[S], outputs_info=[X, pt.dscalar("z")], n_steps=N
    )
    batch = pt.dvector("batch")
    _, last = vectorize_graph([ys[-1] for ys in states], {X: batch})
    graph = graph_of(last)
    after, _ = optimized(graph, "remove-unused")
    assert labels(only_scan(after.fgraph)) == labels(only_scan(graph.fgraph))
    values = {"batch": [1.0, 2.0], "s": [2.0, 3.0, 4.0], "n": 2, "z": 0.5}
    assert_same_outcomes(outputs_of(graph, **values), outputs_of(after, **values))
