"""Entries and parts of rows that steps read and write, at all steps at once."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from scanopt_cli.ir.indexing import IN_BOUNDS, indices_of, is_full_slice, number
from scanopt_cli.passes.loops_to_ops.outside import Outside

READS = (AdvancedSubtensor, Subtensor)
WRITES = (AdvancedIncSubtensor, IncSubtensor)


def has_entries_for_all_steps(node: Apply, varying: set[Variable]) -> bool:
    """Whether `entries_for_all_steps` takes a node that reads or writes by index.

    Slices have the same ends in all steps. Where a place varies, a step writes a whole entry of the
    first axes. Vectors of places are the same in all steps, or alone.
    """
    indices = indices_of(node)
    places = _places(indices)
    ends = [end for index in indices if isinstance(index, slice) for end in _ends(index)]
    steps = (index.step for index in indices if isinstance(index, slice))
    if not all(number(step, 1) for step in steps) or not varying.isdisjoint(ends):
        return False
    if any(place.type.dtype in ("bool", "uint64") for place in places):
        return False
    if getattr(node.op, "ignore_duplicates", False):
        return False
    varies = not varying.isdisjoint(places)
    if isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor):
        if varies:
            is_read = isinstance(node.op, AdvancedSubtensor) and len(indices) == 1
            return is_read and node.inputs[0] not in varying
        return _are_adjacent(indices)
    return isinstance(node.op, Subtensor) or not varies or len(places) == len(indices)


def reads_within(node: Apply) -> bool:
    """Whether slices, and numbers that are provably in bounds, are all that a node indexes by."""
    if not isinstance(node.op, Subtensor | IncSubtensor):
        return False
    for length, index in zip(node.inputs[0].type.shape, indices_of(node), strict=False):
        if isinstance(index, slice):
            if not number(index.step, 1):
                return False
            continue
        place = number(index)
        if place is None or length is None or not -length <= place < length:
            return False
    return True


def entries_for_all_steps(node: Apply, outside: Outside) -> Any:
    """Return what a node reads at all steps, or the rows into which it writes."""
    indices = indices_of(node)
    varies = not outside.varying.keys().isdisjoint(_places(indices))
    if isinstance(node.op, READS):
        if varies:
            return _entries(node, indices, outside)
        found = outside.of(node.inputs[0])[_places_of_all(indices, outside)]
    else:
        rows = outside.rows(node.inputs[0])
        where = _places_of_all(indices, outside)
        if varies:
            vectors = [outside.rows(index) for index in indices]
            where = (pt.arange(outside.n_steps), *_within(vectors, rows, 1))
        write: Any = pt.set_subtensor if node.op.set_instead_of_inc else pt.inc_subtensor
        found = write(rows[where], _spread(node, outside))
    if varies or reads_within(node):
        return found
    (guarded,) = outside.if_there_is_a_step([found])
    return guarded


def added_entries(node: Apply, start: Any, outside: Outside) -> Any:
    """Return an array to which each step adds an entry, with those of all steps added."""
    places = [outside.rows(index) for index in indices_of(node)]
    value: Variable = node.inputs[1]
    return pt.inc_subtensor(
        start[tuple(_within(places, start))], _spread(node, outside, outside.rows(value))
    )


def _entries(node: Apply, indices: list[Any], outside: Outside) -> Any:
    """Return the entries of an array, or of the rows of each step, at places that vary."""
    array = outside.of(node.inputs[0])
    axes = [axis for axis, index in enumerate(indices) if not isinstance(index, slice)]
    places = [outside.rows(indices[axis]) for axis in axes]
    vectors = []
    slices = [
        outside.indices(index) if isinstance(index, slice) else slice(None) for index in indices
    ]
    if node.inputs[0] in outside.varying:
        axes = [0, *(axis + 1 for axis in axes)]
        vectors.append(pt.arange(outside.n_steps))
        slices.insert(0, slice(None))
    if not all(map(is_full_slice, slices)):
        array = array[tuple(slices)]
    order = [*axes, *(axis for axis in range(array.type.ndim) if axis not in axes)]
    if order != sorted(order):
        array = array.dimshuffle(order)
    n_steps = len(axes) - len(places)
    return array[(*vectors, *_within(places, array, n_steps))]


def _within(places: list[Any], array: Any, first: int = 0) -> list[Any]:
    """Return places along the axes of an array from ``first`` on, which are in bounds, or raise.

    Numba reads and writes at vectors of places without a look at the bounds.
    """
    found = []
    for axis, place in enumerate(places, first):
        n = array.shape[axis]
        found.append(IN_BOUNDS(place, pt.all(pt.and_(place >= -n, place < n))))
    return found


def _places_of_all(indices: list[Any], outside: Outside) -> tuple[Any, ...]:
    """Return the indices, of which none varies, that are the same in the rows of all steps."""
    return (slice(None), *map(outside.indices, indices))


def _spread(node: Apply, outside: Outside, rows: Any = None) -> Any:
    """Return what a node writes at all steps, whose rows have the axes of where it is written."""
    value = node.inputs[1]
    if rows is None:
        if value not in outside.varying:
            return outside.of(value)
        rows = outside.of(value)
    places = _places(indices_of(node))
    ndim = node.inputs[0].type.ndim - len(places) + max(map(_ndim, places), default=0)
    added = ndim - value.type.ndim
    order = [0, *["x"] * added, *range(1, rows.type.ndim)]
    return rows.dimshuffle(order) if added else rows


def _are_adjacent(indices: list[Any]) -> bool:
    """Whether no slice is between places, so that axes stay where they are."""
    at = [axis for axis, index in enumerate(indices) if not isinstance(index, slice)]
    return at == list(range(at[0], at[0] + len(at)))


def _places(indices: list[Any]) -> list[Variable]:
    return [index for index in indices if not isinstance(index, slice)]


def _ndim(place: Any) -> int:
    """Return the number of axes of a place, a vector or a number."""
    return getattr(place.type, "ndim", 0)


def _ends(index: slice) -> list[Variable]:
    return [end for end in (index.start, index.stop, index.step) if isinstance(end, Variable)]
