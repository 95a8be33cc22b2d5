"""What a step's computations depend on: states, sequences, or loop-invariant inputs only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import STATES, TRACED, Slot, SlotKind, SlotView


def state_inputs(view: SlotView) -> set[Variable]:
    """Return the body's inputs that hold states."""
    return {variable for slot in view.of_kind(*STATES) for variable in slot.inner_inputs}


def varying_inputs(view: SlotView) -> set[Variable]:
    """Return the body's inputs that hold states, rows of sequences or the number of the step."""
    varying = view.of_kind(SlotKind.SEQ, SlotKind.INDEX)
    return state_inputs(view).union(v for slot in varying for v in slot.inner_inputs)


def invariant_states(view: SlotView) -> list[Slot]:
    """Return the traced states whose update is loop-invariant.

    Such an update depends on no sequence, on no index and on no state. That of a TracedLoop is
    computed of dense arrays alone.
    """
    states = _invariant(view, SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.STATE)
    return [slot for slot in states if slot.kind is not SlotKind.STATE or _is_dense(slot)]


def unchanged_states(view: SlotView) -> list[Slot]:
    """Return the traced states of dense arrays that no step changes."""
    return [
        slot
        for slot in view.of_kind(SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.STATE)
        if -1 in slot.taps
        and slot.inner_outputs[0] is slot.inner_inputs[slot.taps.index(-1)]
        and _is_dense(slot)
    ]


def invariant_outputs(view: SlotView) -> list[Slot]:
    """Return the other outputs that are loop-invariant, and computed of dense arrays alone."""
    return list(filter(_is_dense, _invariant(view, SlotKind.NIT_SOT, SlotKind.TRACED)))


def _invariant(view: SlotView, *kinds: SlotKind) -> list[Slot]:
    varying = varying_inputs(view)
    for node in view.op.fgraph.toposort():
        if not varying.isdisjoint(node.inputs):
            varying.update(node.outputs)
    return [slot for slot in view.of_kind(*kinds) if varying.isdisjoint(slot.inner_outputs)]


def _is_dense(slot: Slot) -> bool:
    """Whether what a step computes for a slot is computed of dense arrays alone."""
    computed = ancestors(slot.inner_outputs)
    return all(isinstance(v.type, DenseTensorType | ScalarType) for v in computed)


def dependent_nodes(varying: Set[Variable], outputs: Sequence[Variable]) -> list[Apply]:
    """Return the nodes between ``varying`` and ``outputs``, in topological order."""
    dependent = set(varying)
    found = []
    for node in io_toposort([], outputs):
        if not dependent.isdisjoint(node.inputs):
            dependent.update(node.outputs)
            found.append(node)
    return found


def are_elementwise_map(view: ScanView, nodes: Iterable[Apply]) -> bool:
    """Whether ``nodes`` of a body are all elementwise arithmetic that reads no state."""
    states = state_inputs(view)
    return all(
        isinstance(node.op, Elemwise | DimShuffle) and states.isdisjoint(node.inputs)
        for node in nodes
    )


def is_elementwise_map(view: ScanView) -> bool:
    """Whether the body is elementwise arithmetic that reads no state, and so needs no loop."""
    return are_elementwise_map(view, view.op.fgraph.toposort())


def keeps_every_step(view: SlotView) -> bool:
    """Whether every output is a trace or a state whose buffer provably holds every step.

    The loop may not stop early, and has no mit_mots or untraced states.
    """
    lengths = Lengths(view.n_steps)
    return not view.is_while and all(
        slot.kind in (*TRACED, SlotKind.TRACED) and is_whole(view, slot, lengths)
        for slot in view.outputs()
    )


def is_replaceable_map(view: ScanView) -> bool:
    """Whether PyTensor's ``scan_push_out_seq`` is correct where it replaces the loop of a map.

    It uses the smallest tap of all mit_sots for each of them, so these must have equally many
    initial rows; and it needs buffers that hold every step.
    """
    return (
        keeps_every_step(view) and len({s.n_initial for s in view.of_kind(SlotKind.MIT_SOT)}) <= 1
    )
