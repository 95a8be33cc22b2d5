"""Legality of differentiation: refuse graphs whose derivative PyTensor silently gets wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.buffers import is_trimmed, trimmed
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import gradient_limit, rows
from scanopt_cli.autodiff.activity import active_nodes, varied
from scanopt_cli.autodiff.connections import disconnected_rows
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.inner_graphs import core_op, op_name, walk
from scanopt_cli.ir.naming import slot_name
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.slots import Slot, SlotKind


def refuse_in_place(fgraph: AbstractFunctionGraph, source: str) -> None:
    """Raise a `GradientError` if a node of ``fgraph`` overwrites an input.

    A derivative reads the values of a graph again, after such a node may have overwritten them.
    """
    for node in walk(fgraph):
        if getattr(node.op, "destroy_map", None):
            raise GradientError(
                f"{node.op} works in place, so the graph cannot be differentiated",
                where=source,
                hint="take the derivative of the graph as it is before it is compiled",
            )


def refuse_trimmed(inputs: Sequence[Variable], output: Variable, source: str) -> None:
    """Raise a `GradientError` if a Scan between ``inputs`` and ``output`` may have trimmed buffers.

    The derivative of a loop reads every step of its buffers, and PyTensor does not notice that
    memory saving has trimmed them. A buffer that does not provably hold every step counts as
    trimmed. A truncated gradient is refused as by `refuse_truncated`.

    PyTensor's derivative of a gradient takes the last row of a mit_mot for the farthest that the
    last step writes. Once `drop-taps` has dropped that write, there are rows behind it.
    """
    refuse_truncated(inputs, [output], source)
    for view, name in _scans_between(inputs, [output]):
        if long := [slot for slot in view.of_kind(SlotKind.MIT_MOT) if _is_too_long(view, slot)]:
            raise GradientError(
                f"{name} has rows behind those that its last step writes in "
                f"{', '.join(map(_slot_text, long))}, and PyTensor's derivative of that is wrong",
                where=source,
                hint="differentiate before drop-taps, or run mit-mot-to-sit-sot",
            )
        short = [slot for slot in trimmed(view) if not _is_padded(view, slot)]
        if short:
            buffers = ", ".join(map(_slot_text, short))
            raise GradientError(
                f"{name} is not proved to keep every step of {buffers}, "
                "and without them its derivative would be wrong",
                where=source,
                hint=_trimmed_hint(view, short),
            )


def refuse_truncated(inputs: Sequence[Variable], outputs: Sequence[Variable], source: str) -> None:
    """Raise a `GradientError` if a truncated gradient would be differentiated again.

    A gradient that stops after k steps leaves the other rows of its buffers zero, and PyTensor
    starts the next derivative at that end of the buffers.
    """
    for view, name in _scans_between(inputs, outputs):
        if _is_misaligned(view):
            raise GradientError(
                f"{name} is a gradient truncated after {view.op.truncate_gradient} steps, "
                "and PyTensor's derivative of that is wrong",
                where=source,
                hint="take the first derivative only, or build the loop without truncate_gradient",
            )


def refuse_disconnected_rows(
    inputs: Sequence[Variable], outputs: Sequence[Variable], source: str
) -> None:
    """Raise a `GradientError` if PyTensor's reverse mode would lose a state's initial rows.

    If no step computes a state from itself, PyTensor takes its initial rows to be disconnected
    from the buffer that begins with them. A node that reads the buffer from its first row on then
    passes no derivative to them; a gradient reads the buffers of its loop like that. Bodies of
    loops are not checked.
    """
    moved = varied(outputs, inputs)
    nodes = list(toposort(outputs))
    readers: dict[Variable, list[Apply]] = {}
    for node in nodes:
        for variable in node.inputs:
            readers.setdefault(variable, []).append(node)
    for node in nodes:
        for view, slot, _ in disconnected_rows(node):
            buffer = slot.outer_output
            assert buffer is not None
            if slot.outer_input not in moved or buffer not in readers:
                continue
            if not all(_skips(reader, view, slot) for reader in readers[buffer]):
                raise GradientError(
                    f"no step of {op_name(node.op)} computes {_slot_text(slot)} from itself, so "
                    "PyTensor's reverse mode drops the derivative through its initial rows",
                    where=source,
                    hint="use strategy forward-over-reverse",
                )


def _skips(reader: Apply, view: ScanView, slot: Slot) -> bool:
    """Whether ``reader`` reads only the shape, or rows after the initial ones, of a buffer."""
    if isinstance(reader.op, Shape | Shape_i):
        return True
    rows = rows_index(reader, view.batch_ndim)
    if rows is None or isinstance(core_op(reader.op), IncSubtensor):
        return False
    if not isinstance(rows, slice):
        # The last row is a step's, if the loop runs any step.
        return isinstance(rows, Constant) and (int(rows.data) == -1 or rows.data >= slot.n_initial)
    is_forward = rows.step is None and isinstance(rows.start, Constant)
    return is_forward and int(rows.start.data) >= slot.n_initial


def truncations(inputs: Sequence[Variable], output: Variable) -> Iterator[str]:
    """Yield a note for each Scan between ``inputs`` and ``output`` whose gradient is truncated."""
    for view, name in _scans_between(inputs, [output]):
        limit = gradient_limit(view, Lengths(view.n_steps))
        if limit is not None:
            yield f"the gradient of {name} is truncated after {limit} steps"


def _scans_between(
    inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> Iterator[tuple[ScanView, str]]:
    """Each Scan that is differentiated, and its name in messages."""
    for place in active_nodes(inputs, outputs):
        if place.title is not None and scan_op(place.node) is not None:
            yield ScanView.of(place.node), f"Scan {'/'.join((*place.path, place.title))}"


def _is_misaligned(view: ScanView) -> bool:
    """Whether a truncated gradient has mit_mots that may have rows for more steps than it runs."""
    if view.op.truncate_gradient == -1:
        return False
    lengths = Lengths(view.n_steps)
    steps = lengths.value_of(view.n_steps)
    for slot in view.of_kind(SlotKind.MIT_MOT):
        taps = (*slot.taps, *slot.out_taps)
        needed = steps + max(taps) - min(taps)
        if not lengths.provably_le(rows(view, slot, lengths), needed):
            return True
    return False


def _is_too_long(view: ScanView, slot: Slot) -> bool:
    """Whether the buffer of a mit_mot provably has rows behind the farthest that a step writes."""
    lengths = Lengths(view.n_steps)
    needed = lengths.value_of(view.n_steps) + max(slot.out_taps) - min(slot.taps)
    return lengths.provably_le(needed + 1, rows(view, slot, lengths))


def _is_padded(view: ScanView, slot: Slot) -> bool:
    """Whether a truncated gradient provably has all rows of a buffer; further rows are padding."""
    if view.op.truncate_gradient == -1:
        return False
    lengths = Lengths(view.n_steps)
    steps = lengths.value_of(view.n_steps) + slot.n_initial
    return lengths.provably_le(steps, rows(view, slot, lengths))


def _trimmed_hint(view: ScanView, slots: Sequence[Slot]) -> str:
    lengths = Lengths(view.n_steps)
    if any(is_trimmed(view, slot, lengths) for slot in slots):
        return "differentiate before save-mem"
    return "build the loop by pytensor.scan, whose buffers have lengths that can be read"


def _slot_text(slot: Slot) -> str:
    """A slot's name, followed by its label.

    Readers of its buffer give no name, since the Scan may be in a body.
    """
    name = slot_name(slot, lambda _: ())
    return name if name == slot.label else f"{name} ({slot.label})"
