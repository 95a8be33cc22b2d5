"""What PyTensor makes of trimmed buffers when it compiles, and how to read them all the same.

PyTensor takes every buffer for whole: of an output whose length it knows, a row that is counted
from the start is the step of that number to it, and it runs no more steps than that. It merges
slices of slices into rows counted from the start. What it leaves alone are rows counted from the
end, and outputs that something else reads than an index. A loop of which no step reads a state,
once what is unused is gone, it turns into one expression that has all steps, and then has no room
for them in a shorter buffer.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.compile.ops import deep_copy_op
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.shape import Shape, Shape_i

from scanopt_cli.scans.lengths import Lengths, Linear
from scanopt_cli.scans.reads import Clients, is_strip, number, row_index, rows_alone
from scanopt_cli.scans.view import STATES, ScanView, Slot


def trimmed_reads(
    view: ScanView, slot: Slot, trimmed: Variable, clients: Clients, lengths: Lengths
) -> dict[Variable, Variable]:
    """Return replacements for the output of ``slot`` and its readers, now that it is ``trimmed``.

    A row counted from the end is read from the output itself. All else reads a copy of the few rows
    that are left, which keeps PyTensor from looking through. It does not look into a batched loop.
    """
    old = slot.outer_output
    assert old is not None
    if view.batch_ndim:
        return {old: trimmed}
    found: dict[Variable, Variable] = {old: trimmed}
    for node, position in clients(old):
        if isinstance(node.op, Shape | Shape_i):
            continue
        rows = list(_last_rows(view, slot, node, clients, lengths)) if position == 0 else []
        if None in rows or not rows:
            found[old] = deep_copy_op.make_node(trimmed).outputs[0]
        for reader in rows:
            if reader is not None:
                found[reader.outputs[0]] = reader.op(trimmed, *reader.inputs[1:])
    return found


def is_mapped(view: ScanView, slot: Slot) -> bool:
    """Whether no step computes ``slot`` from a state, so that PyTensor may do without the loop."""
    states = {variable for other in view.of_kind(*STATES) for variable in other.inner_inputs}
    return not view.batch_ndim and states.isdisjoint(ancestors(slot.inner_outputs))


def _last_rows(
    view: ScanView, slot: Slot, node: Apply, clients: Clients, lengths: Lengths
) -> Iterator[Apply | None]:
    """Yield who reads a row counted from the end through ``node``, and ``None`` for others.

    Without the start, a loop of too few steps has no such row, so there must be enough.
    """
    if _row(node) is not None:
        yield node
        return
    index = rows_alone(node, 0)
    if not isinstance(index, slice) or not is_strip(index, slot.reach):
        yield None
        return
    steps = lengths.value_of(view.n_steps)
    for reader, position in clients(node.outputs[0]):
        row = _row(reader) if position == 0 else None
        if row is not None and lengths.at_most(Linear(row), steps):
            yield reader
        else:
            yield None


def _row(node: Apply) -> int | None:
    """How far from the end the one row is that ``node`` reads, 1 for the last."""
    index = row_index(node, 0)
    if index is None or isinstance(index, slice):
        return None
    place = number(index)
    return -place if place is not None and place < 0 else None
