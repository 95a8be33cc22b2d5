"""Writes of rows: to whole buffers, nested writes into zeros, and simpler indices."""

from __future__ import annotations

from dataclasses import replace

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.affine import ONE, ZERO
from scanopt_cli.analysis.row_values import filling, unexpanded
from scanopt_cli.ir.indexing import taken
from scanopt_cli.passes.clean_slices.buffer_facts import BufferFacts, Write, filled, relative
from scanopt_cli.passes.clean_slices.canonical_slices import canonical_slice, cost
from scanopt_cli.passes.clean_slices.reads import written
from scanopt_cli.passes.clean_slices.slice_chains import chains

# Filling a buffer of at most this many rows costs less than the nodes that set its first ones.
_SHORT = 8


def full_write(node: Apply, facts: BufferFacts) -> Variable | None:
    """Return the value of a write that sets every row, or adds to zeros in every row."""
    write = facts.write(node)
    if write is None or not write.is_aligned or not _is_full(write, facts):
        return None
    turn = slice(None, None, -1 if write.rows.is_reversed else None)
    return taken(write.value, write.axis, turn)


def may_lose_shape(node: Apply, facts: BufferFacts) -> bool:
    """Whether a buffer stays only since the value that sets every row may have another shape."""
    write = facts.write(node)
    return write is not None and write.may_lose_shape and _is_full(write, facts)


def _is_full(write: Write, facts: BufferFacts) -> bool:
    """Whether a write sets every row, or adds to zeros in every row."""
    if write.is_row or not write.rows.covers(write.length):
        return False
    return write.sets or facts.is_zero(write.array, write.axis)


def merged_writes(node: Apply, facts: BufferFacts) -> Variable | None:
    """Return a write into zeros, whose value is itself a write into zeros, as one write."""
    outer = facts.write(node)
    if outer is None or outer.is_row or not outer.is_aligned:
        return None
    inner = _inner_write(outer.value, outer.axis, facts)
    if inner is None or not facts.is_zero(outer.array, outer.axis, outer.rows):
        return None
    rows = inner.rows.within(outer.rows)
    if inner.may_lose_shape and rows.covers(outer.length):
        return None
    moved = replace(outer, is_row=inner.is_row, order=inner.order)
    return written(moved, rows, inner.value, facts)


def _inner_write(variable: Variable, axis: int, facts: BufferFacts) -> Write | None:
    """Return the write into zeros that made ``variable``, through slices that keep all of it."""
    node = variable.owner
    if node is None:
        return None
    if isinstance(node.op, IncSubtensor):
        write = facts.write(node)
        if write is None or write.axis != axis or write.is_cast:
            return None
        return write if facts.is_zero(write.array, axis) else None
    if not isinstance(node.op, Subtensor):
        return None
    for chain in chains(node, facts.lengths):
        behind = chain.array.owner
        if chain.axis != axis or chain.is_row or behind is None:
            continue
        if not isinstance(behind.op, IncSubtensor):
            continue
        found = _inner_write(chain.array, axis, facts)
        if found is not None and facts.within(found.rows, chain.rows):
            return replace(found, rows=relative(found.rows, chain.rows))
    return None


def simplified_write(node: Apply, facts: BufferFacts) -> Variable | None:
    """Return a write with a simpler index; one row loses the axis that was inserted for it."""
    write = facts.write(node)
    if write is None or write.is_row:
        return None
    row = unexpanded(write.value, write.axis)
    is_start = write.array.owner is not None and isinstance(write.array.owner.op, AllocEmpty)
    if row is not None and write.rows.length == ONE and not is_start:
        one = replace(write, is_row=True)
        return written(one, write.rows, row, facts)
    # PyTensor drops a buffer that is written by [:], by the lengths that types say.
    if write.rows.is_reversed or (write.may_lose_shape and write.rows.covers(write.length)):
        return None
    index = canonical_slice(write.rows, write.length, facts.lengths)
    if index is None or cost(index) >= cost(rows_index(node, write.axis)):
        return None
    return written(write, write.rows, write.value, facts)


def filled_buffer(node: Apply, facts: BufferFacts) -> Variable | None:
    """Return the short buffer ``AllocEmpty(5)[:1].set(expand_dims(h0, 0))`` as an Alloc."""
    write = facts.write(node)
    if write is None or write.axis or write.is_row or write.is_cast or not write.sets:
        return None
    empty = write.array.owner
    if empty is None or not isinstance(empty.op, AllocEmpty) or write.rows.low != ZERO:
        return None
    if not write.length.is_constant or write.length.constant > _SHORT:
        return None
    row = filling(write.value)
    if row is None and write.rows.length == ONE and write.is_aligned:
        row = unexpanded(write.value, 0)
    # The rows behind the initial ones were uninitialised, so any value may fill them.
    return None if row is None else filled(row, [write.length.constant, *empty.inputs[1:]])
