"""Where the values come from that the steps of two loops read: arrays outside, and indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType, lscalar

from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import ZERO, AffineExpr, Atom
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView

type Index = tuple[AffineExpr, ...]
"""The indices of the first axes of an array, in terms of the step ``i`` of the forward loop."""


@dataclass(frozen=True, slots=True)
class Source:
    """A location: an array outside of the loops, and an index."""

    array: Any
    index: Index = ()


class Sources:
    """The sources of what is read in the unfrozen bodies of a forward and a backward loop."""

    def __init__(self, forward: LoopView, backward: LoopView, lengths: Lengths) -> None:
        self._lengths = lengths
        self._i = Atom(lscalar("i"))
        i = AffineExpr.of(self._i)
        self._inputs: dict[Variable, Source] = {}
        self._steps: dict[Variable, AffineExpr] = {}
        """The index of each loop, in terms of ``i``."""
        for view, step in ((forward, i), (backward, lengths.steps - 1 - i)):
            for slot in view.of_kind(SlotKind.INDEX):
                self._steps[slot.inner_inputs[0]] = step
            for slot in view.of_kind(SlotKind.CONSTANT):
                self._inputs[slot.inner_inputs[0]] = Source(slot.outer_input)
        states = forward.of_kind(SlotKind.STATE)
        for slot in states:
            self._inputs[slot.inner_inputs[0]] = Source(slot.output, (i,))
        self._entry_traces: dict[tuple[Variable, Index], Variable] = {}
        """By the trace of an array state and the index of an entry: the trace of its own state."""
        self._find_entries(states)

    def of(self, variable: Any, index: Index = ()) -> Source:
        """Return the location of a variable at an index, as far outside of the loops as known.

        Slices of rows on the way back are collected, and composed at the end. So they all have to
        cut the first axis of the array that is found. If they do not compose, the location is the
        variable itself.
        """
        start = Source(variable, index)
        slices: list[slice] = []
        moved: Source | None = start
        while moved is not None:
            variable, index = moved.array, moved.index
            moved = self._one_node_back(variable, index, slices)
        if slices:
            found: RowRange | None = RowRange(ZERO, self._lengths.length_of(variable))
            for rows in reversed(slices):
                found = None if found is None else found.cut(rows, self._lengths)
            row, *rest = index
            if found is None or not self._varies(row):
                return start
            index = (found.row(row), *rest)
        trace = self._entry_traces.get((variable, index[1:])) if index else None
        return Source(variable, index) if trace is None else Source(trace, index[:1])

    def known(self, indices: Sequence[Any]) -> Index:
        """Return the first indices of a node, as far as they are known in terms of the step."""
        found = takewhile(lambda part: part is not None, map(self._index, indices))
        return tuple(part for part in found if part is not None)

    def _one_node_back(self, variable: Any, index: Index, slices: list[slice]) -> Source | None:
        """Go back by a DimShuffle, a Subtensor or an input; add slices of rows to ``slices``.

        Behind a slice, no step back leads to an array whose first axis is another one.
        """
        if variable in self._inputs:
            source = self._inputs[variable]
            is_first = not slices or not source.index
            return Source(source.array, (*source.index, *index)) if is_first else None
        node = variable.owner
        if node is None or not isinstance(node.op, DimShuffle | Subtensor):
            return None
        if isinstance(node.op, DimShuffle):
            is_first = not slices or node.op.new_order[:1] == (0,)
            moved = self._transposed(node, index) if is_first else None
        elif index and self._varies(index[0]) and _is_slice_of_rows(node):
            slices += indices_of(node)
            moved = index
        else:
            parts = [self._index(part) for part in indices_of(node)]
            known = [part for part in parts if part is not None]
            is_first = not slices or not known
            moved = (*known, *index) if is_first and len(known) == len(parts) else None
        return None if moved is None else Source(node.inputs[0], moved)

    def _transposed(self, node: Apply, index: Index) -> Index | None:
        """Return the index into the operand of a DimShuffle, ``None`` if there is none."""
        order = node.op.new_order
        if len(index) != len(order):
            # A row of an array, of which the other axes stay in order.
            kept = [axis for axis in order if axis != "x"]
            is_row = len(index) == 1 and order[:1] == (0,) and kept == sorted(kept)
            return index if is_row else None
        moved = [ZERO] * node.inputs[0].type.ndim
        for part, axis in zip(index, order, strict=True):
            if axis != "x":
                moved[axis] = part
            elif self._varies(part):
                return None
        return tuple(moved)

    def _index(self, part: Any) -> AffineExpr | None:
        """Return an index that is a number or provably not negative, ``None`` for another one."""
        if isinstance(part, slice):
            return None
        known = number(part)
        if known is not None:
            return AffineExpr(known)
        form = Lengths().value_of(part)  # in terms of the variables of the body
        found = AffineExpr(form.constant)
        for atom, count in form.terms:
            value = None if atom.axis is not None else self._affine_value(atom.variable)
            if value is None:
                return None
            found += value.scaled(count)
        slope = dict(found.terms).get(self._i, 0)
        # The smallest is that of the first step, or that of the last one.
        smallest = found - AffineExpr.of(self._i).scaled(slope)
        if slope < 0:
            smallest += (self._lengths.steps - 1).scaled(slope)
        return found if self._lengths.provably_le(0, smallest) else None

    def _affine_value(self, variable: Variable) -> AffineExpr | None:
        """Return what an integer is in terms of ``i``, ``None`` if a step computes it."""
        source = self._inputs.get(variable)
        if source is None or source.index:
            return self._steps.get(variable)
        return self._lengths.value_of(source.array)

    def _varies(self, part: AffineExpr) -> bool:
        return self._i in part.atoms

    def _find_entries(self, states: list[Slot]) -> None:
        """Find the states that are an entry of another one, in every step."""
        states_by_next_value: dict[Variable, list[Slot]] = {}
        for slot in states:
            states_by_next_value.setdefault(slot.inner_outputs[0], []).append(slot)
        for slot in states:
            made: Any = slot.inner_outputs[0]
            shape: Any = made.type.shape if isinstance(made.type, DenseTensorType) else (None,)
            if isinstance(made.owner_op, Reshape):
                made = made.owner.inputs[0]
            if not isinstance(made.owner_op, MakeVector) or None in shape:
                continue
            for position, entry in zip(np.ndindex(*shape), made.owner.inputs, strict=True):
                index = tuple(map(AffineExpr, position))
                for own in states_by_next_value.get(entry, ()):
                    if self.of(own.outer_input) == self.of(slot.outer_input, index):
                        self._entry_traces[slot.output, index] = own.output


def _is_slice_of_rows(node: Apply) -> bool:
    first, *rest = indices_of(node)
    return isinstance(first, slice) and not rest
