"""Writes of rows: whole ones, ones into zeros that are written elsewhere, and plainer indices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.passes.slice_facts import Facts, Write, absolute, relative, taken
from scanopt_cli.passes.slice_reads import written
from scanopt_cli.scans.lengths import Linear
from scanopt_cli.scans.plain_slices import cost, plain_slice
from scanopt_cli.scans.row_analysis import unexpanded
from scanopt_cli.scans.slice_chains import chains
from scanopt_cli.scans.windows import rows_index

_ONE = Linear(1)


def whole(node: Apply, facts: Facts) -> Variable | None:
    """Return a value that is written to every row, for what it is written to."""
    write = facts.write(node)
    if write is None or not write.is_aligned:
        return None
    if write.is_row:
        return None
    if not write.is_whole or not (write.sets or facts.is_zero(write.base, write.axis)):
        return None
    turn = slice(None, None, -1 if write.window.is_reversed else None)
    return taken(write.value, write.axis, turn)


def nested(node: Apply, facts: Facts) -> Variable | None:
    """Return a write of zeros that are written to, into zeros, as one write."""
    outer = facts.write(node)
    if outer is None or outer.is_row or not outer.is_aligned:
        return None
    inner = _placed(outer.value, outer.axis, facts)
    if inner is None or not facts.is_zero(outer.base, outer.axis, outer.window):
        return None
    window = absolute(inner.window, outer.window)
    moved = replace(outer, is_row=inner.is_row)
    return written(moved, window, inner.value, facts)


def _placed(variable: Variable, axis: int, facts: Facts) -> Write | None:
    """What is written into zeros, seen through slices that keep all of it."""
    node = variable.owner
    if node is None:
        return None
    if isinstance(node.op, IncSubtensor):
        write = facts.write(node)
        if write is None or write.axis != axis or not write.is_aligned:
            return None
        return write if facts.is_zero(write.base, axis) else None
    if not isinstance(node.op, Subtensor):
        return None
    for chain in chains(node, facts.lengths):
        behind = chain.base.owner
        if chain.axis != axis or chain.is_row or behind is None:
            continue
        if not isinstance(behind.op, IncSubtensor):
            continue
        found = _placed(chain.base, axis, facts)
        if found is not None and facts.within(found.window, chain.window):
            return replace(found, window=relative(found.window, chain.window))
    return None


def plainer(node: Apply, facts: Facts) -> Variable | None:
    """Return a write with an index that is simpler, and one row without an axis put in for it."""
    write = facts.write(node)
    if write is None or write.is_row:
        return None
    row = unexpanded(write.value, write.axis)
    is_start = write.base.owner is not None and isinstance(write.base.owner.op, AllocEmpty)
    if row is not None and write.window.length == _ONE and not is_start:
        one = replace(write, is_row=True)
        return written(one, write.window, row, facts)
    if write.window.is_reversed:
        return None
    index = plain_slice(write.window, write.length, facts.lengths)
    if index is None or cost(index) >= cost(rows_index(node, write.axis)):
        return None
    base: Any = write.base
    place = base[(*(slice(None),) * write.axis, index)]
    made: Variable = place.set(write.value) if write.sets else place.inc(write.value)
    return made
