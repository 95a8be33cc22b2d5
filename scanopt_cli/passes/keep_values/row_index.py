"""Which row of which array a step of a loop reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import AffineExpr, Atom
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop.operator_base import LoopView


@dataclass(frozen=True, slots=True)
class StepRow:
    """The row ``offset + i`` of an array, or ``offset - i``, in step ``i``."""

    offset: AffineExpr
    is_falling: bool = False

    def within(self, part: RowRange) -> StepRow:
        """Return the row of the array of which ``part`` are some rows."""
        if part.is_reversed:
            return StepRow(part.high - 1 - self.offset, not self.is_falling)
        return StepRow(part.low + self.offset, self.is_falling)


type Index = tuple[int | StepRow, ...]
"""An index of an array: numbers, and at most one row that depends on the step."""


def place(part: Any, view: LoopView, lengths: Lengths) -> int | StepRow | None:
    """Return an index in a step as a number or a row, ``None`` if it is another.

    A row is of the size that it says: it does not wrap around at 0.
    """
    if isinstance(part, slice):
        return None
    known = number(part)
    if known is not None:
        return known
    (position,) = next(iter(view.of_kind(SlotKind.INDEX))).inner_inputs
    outer = {slot.inner_inputs[0]: slot.outer_input for slot in view.of_kind(SlotKind.CONSTANT)}
    inside = Lengths().value_of(part)
    offset, sign = AffineExpr(inside.constant), 0
    for atom, count in inside.terms:
        if atom == Atom(position):
            sign = count
        elif atom.axis is None and atom.variable in outer:
            offset += lengths.value_of(outer[atom.variable]).scaled(count)
        else:
            return None
    if sign not in (1, -1):
        return None
    smallest = offset if sign == 1 else offset - lengths.steps + 1
    return StepRow(offset, sign == -1) if lengths.provably_le(0, smallest) else None


def base(variable: Any, index: Index) -> tuple[Any, Index, list[slice]]:
    """Return what a variable is a part of, the index into that, and the slices of its rows."""
    slices: list[slice] = []
    while variable.owner is not None:
        node = variable.owner
        moved: Index | None = None
        if isinstance(node.op, DimShuffle):
            moved = through(node, index)
        elif isinstance(node.op, Subtensor):
            first, *rest = indices_of(node)
            if isinstance(first, slice) and not rest and index and isinstance(index[0], StepRow):
                slices.append(first)
                moved = index
            else:
                known = [n for part in (first, *rest) if (n := number(part)) is not None]
                moved = (*known, *index) if len(known) == 1 + len(rest) else None
        if moved is None:
            break
        index, variable = moved, node.inputs[0]
    return variable, index, slices[::-1]


def through(node: Apply, index: Index) -> Index | None:
    """Return the index into the operand of a DimShuffle, ``None`` if dimensions are left."""
    order = node.op.new_order
    if len(index) != len(order):
        # A row of an array of which further dimensions are not indexed, and stay in order.
        is_row = len(index) == 1 and isinstance(index[0], StepRow) and order[:1] == (0,)
        kept = [axis for axis in order if axis != "x"]
        return index if is_row and kept == sorted(kept) else None
    moved: list[int | StepRow] = [0] * node.inputs[0].type.ndim
    for part, axis in zip(index, order, strict=True):
        if axis != "x":
            moved[axis] = part
        elif isinstance(part, StepRow):
            return None
    return tuple(moved)


def n_rows(variable: Variable, forward: LoopView, lengths: Lengths) -> AffineExpr:
    """Return how many rows an array has, which may be a trace of the forward loop."""
    slot = next((slot for slot in forward.outputs() if slot.outer_output is variable), None)
    return lengths.length_of(variable) if slot is None else rows(forward, slot, lengths)
