"""Reads of trimmed buffers, in forms that PyTensor compiles correctly.

PyTensor assumes that every buffer is whole. If it knows the length of an output, it takes a row
counted from the start for the step of that number, and runs no more steps than that. It also merges
slices of slices into rows counted from the start. It leaves alone reads of the last row, and
outputs that a node other than an index reads. If no step reads a state once dead code is removed,
PyTensor turns the loop into one expression of all steps, for which a trimmed buffer has no room.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.ops import deep_copy_op
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.accesses import is_strip
from scanopt_cli.analysis.accesses.indices import read_index
from scanopt_cli.analysis.dependence import state_inputs
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot


def trimmed_reads(
    view: ScanView, slot: Slot, trimmed: Variable, clients: Clients, lengths: Lengths
) -> dict[Variable, Variable]:
    """Return replacements for the output of ``slot`` and its readers, now that it is ``trimmed``.

    Reads of the last row use the output itself. All other reads use a copy of the remaining rows,
    which PyTensor does not look through. A batched loop needs no copy: PyTensor does not look into
    it.
    """
    old = slot.output
    if view.batch_ndim:
        return {old: trimmed}
    found: dict[Variable, Variable] = {old: trimmed}
    for node, position in clients(old):
        if isinstance(node.op, Shape | Shape_i):
            continue
        readers = [] if position else list(_last_row_readers(slot, node, clients, lengths))
        rows = {reader: _last_row(reader, trimmed) for reader in readers if reader is not None}
        if None in readers or not readers:
            found[old] = deep_copy_op.make_node(trimmed).outputs[0]
        found |= {node.outputs[0]: row for node, row in rows.items()}
    return found


def is_unsafe_reader(slot: Slot, clients: Clients, lengths: Lengths, node: Apply) -> bool:
    """Whether ``node`` indexes the output of ``slot``, and PyTensor may misread its rows.

    PyTensor may take them for other steps unless ``node`` reads the last row, or takes all steps
    and every index into these reads the last row.
    """
    readers = list(_last_row_readers(slot, node, clients, lengths))
    if None not in readers:
        return False
    if not is_strip(read_index(node, 0), slot.n_initial):
        return True
    indexing = [c for c, _ in clients(node.outputs[0]) if isinstance(c.op, Subtensor)]
    return any(reader not in readers for reader in indexing)


def is_mapped(view: ScanView, slot: Slot) -> bool:
    """Whether no step computes ``slot`` from a state, so that PyTensor may remove the loop."""
    return not view.batch_ndim and state_inputs(view).isdisjoint(ancestors(slot.inner_outputs))


def _last_row_readers(
    slot: Slot, node: Apply, clients: Clients, lengths: Lengths
) -> Iterator[Apply | None]:
    """Yield each reader of the last row through ``node``, and ``None`` for each other reader.

    Without the initial rows, a loop of too few steps has no last row, so its steps must provably
    be enough.
    """

    def is_there(reader: Apply, start: int, *, is_raw: bool) -> bool:
        index = read_index(reader, 0)
        if index is None or not index.reads_last:
            return False
        # An index out of bounds of the buffer itself is an error before and after.
        is_error = is_raw and not index.is_slice
        return is_error or lengths.runs(1 - start)

    if is_there(node, slot.n_initial, is_raw=True):
        yield node
    elif is_strip(read_index(node, 0), slot.n_initial):
        for reader, position in clients(node.outputs[0]):
            yield reader if position == 0 and is_there(reader, 0, is_raw=False) else None
    else:
        yield None


def _last_row(node: Apply, buffer: Any) -> Variable:
    """Return ``node`` as a read of ``buffer``; a slice becomes the row with its axis inserted."""
    index = read_index(node, 0)
    if index is not None and index.is_slice:
        rows: Variable = pt.expand_dims(buffer[-1], 0)
        return rows
    read: Variable = node.op.make_node(buffer, *node.inputs[1:]).outputs[0]
    return read
