"""ScanView: faces in the right places, and back."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import PassError
from scanopt_cli.ir.scan_view import ScanView, first_traced
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import graph_of, only_scan, power, scan, scan_views


def _every_kind() -> ScanView:
    n, x, init, s = pt.lscalar("n"), pt.dscalar("x"), pt.dvector("init"), pt.dvector("s")

    def step(a, y1, y2, z, w):
        return [y1 + y2 * a, z * w, a + 1]

    ys, zs, ms = scan(
        step,
        sequences=[s],
        outputs_info=[{"initial": init, "taps": [-3, -1]}, x, None],
        non_sequences=[x * 2],
        n_steps=n,
    )
    return only_scan(graph_of(ys[-1], zs[-1], ms).fgraph)


def test_every_kind_has_its_slot() -> None:
    view = _every_kind()
    kinds = [slot.kind for slot in view.slots]
    assert kinds == [
        SlotKind.SEQ,
        SlotKind.MIT_SOT,
        SlotKind.SIT_SOT,
        SlotKind.NIT_SOT,
        SlotKind.NON_SEQ,
    ]
    mit_sot = view.of_kind(SlotKind.MIT_SOT)[0]
    assert mit_sot.taps == (-3, -1)
    assert mit_sot.n_initial == 3
    assert len(mit_sot.inner_inputs) == 2


def test_slots_hold_matching_faces() -> None:
    """The state is the slot whose update adds, the other the one whose update multiplies."""
    view = _every_kind()
    update = {slot.kind: slot.inner_outputs[0].owner.op.scalar_op.name for slot in view.outputs()}
    assert update == {
        SlotKind.MIT_SOT: "add",
        SlotKind.SIT_SOT: "mul",
        SlotKind.NIT_SOT: "add",
    }
    non_seq = view.of_kind(SlotKind.NON_SEQ)[0]
    assert (
        view.of_kind(SlotKind.SIT_SOT)[0].inner_outputs[0].owner.inputs[1]
        is (non_seq.inner_inputs[0])
    )


def test_mit_mot_of_a_gradient() -> None:
    x, xs = power()
    *_, backward = scan_views(graph_of(pt.grad(xs[-1], x)).fgraph)
    (mit_mot,) = backward.of_kind(SlotKind.MIT_MOT)
    assert (mit_mot.taps, mit_mot.out_taps) == ((0, 1), (1,))
    assert len(mit_mot.inner_outputs) == 1


def test_while_condition_is_the_last_inner_output() -> None:
    x = pt.dscalar("x")
    xs = scan(lambda y: (y * 2, until(y > 100)), outputs_info=[x], n_steps=50)
    view = only_scan(graph_of(xs[-1]).fgraph)
    assert view.is_while
    assert view.inner_outputs()[-1] is view.condition


def _outside(slot: Slot) -> list[object]:
    taps = [slot.kind, slot.position, slot.taps, slot.out_taps]
    return [*taps, slot.outer_input, slot.outer_output]


@pytest.mark.deep
@given(generated=scan_graphs())
def test_the_slot_of_one_output_is_the_same(generated: GeneratedScan) -> None:
    for view in scan_views(graph_of(*generated.outputs).fgraph):
        part = ScanView.of_outputs(view.node, *range(len(view.node.outputs)))
        assert list(map(_outside, part.slots)) == list(map(_outside, view.outputs()))
        assert not any(slot.inner_inputs or slot.inner_outputs for slot in part.slots)
        assert (part.n_steps, part.condition, part.batch_ndim) == (
            view.n_steps,
            view.condition,
            view.batch_ndim,
        )
        traced = [i for i, slot in enumerate(view.outputs()) if slot.kind in TRACED]
        assert not traced or traced[0] == first_traced(view.node)


@given(generated=scan_graphs())
def test_rebuilding_changes_nothing(generated: GeneratedScan) -> None:
    graph = graph_of(*generated.outputs)
    before = digest(graph)
    for view in list(scan_views(graph.fgraph)):
        view.unfreeze()
        graph.fgraph.replace_all(list(view.rebuild().items()))
    assert digest(graph) == before


def test_blockwise_scan_is_a_scan() -> None:
    x, xs = power(pt.lscalar("n"))
    batch = pt.dvector("batch")
    view = only_scan(graph_of(vectorize_graph(xs[-1], {x: batch})).fgraph)
    assert view.batch_ndim == 1
    assert [slot.kind for slot in view.slots] == [SlotKind.SIT_SOT]
    view.unfreeze()
    replaced = view.rebuild()
    (old, new), *_ = replaced.items()
    assert new.type == old.type
    assert new.owner.op.signature == view.node.op.signature


def test_what_is_no_scan_is_refused() -> None:
    x = pt.dscalar("x")
    with pytest.raises(PassError, match="is not a Scan"):
        ScanView.of((x + np.float64(1)).owner)
