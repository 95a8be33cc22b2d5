"""The step of a loop, computed entry by entry where its arrays are small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.naming import entry_name
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.of_traced_loops.unroll_small.array_entries import (
    Entries,
    Unrolling,
    fresh,
    stacked,
    vector,
)
from scanopt_cli.passes.of_traced_loops.unroll_small.groups import ArrayGroup, groups
from scanopt_cli.passes.of_traced_loops.unroll_small.rules import entries_of
from scanopt_cli.passes.of_traced_loops.unroll_small.stand_ins import stand_ins
from scanopt_cli.pipeline.contract import PassContext

type Shape = tuple[int | None, ...]


def shape_of(slot: Slot, lengths: Lengths) -> Shape | None:
    """Return the lengths of an initial state or constant, as far as they are known."""
    (inner,) = slot.inner_inputs
    outer: Any = slot.outer_input
    if not isinstance(inner.type, DenseTensorType) or not inner.type.ndim:
        return None
    shape: list[int | None] = []
    for axis, length in enumerate(inner.type.shape):
        if length is None:
            found = lengths.length_of(outer, axis)
            # PyTensor does not broadcast an axis whose length it learns when it runs.
            length = found.constant if found.is_constant and found.constant != 1 else None
        shape.append(length)
    return tuple(shape)


class Step:
    """The step of a loop, whose small arrays are computed entry by entry.

    Of an estimate, variables stand for entries: it tells which are computed, and is not rebuilt.
    """

    def __init__(
        self,
        view: LoopView,
        size: int,
        shapes: Mapping[Slot, Shape],
        kept: Set[Slot],
        left: Set[Apply],
        *,
        is_estimate: bool = False,
    ) -> None:
        self.view = view
        self.unrolling = Unrolling(size, stand_ins if is_estimate else entries_of, left)
        self.entries: dict[Slot, Entries] = {}
        """The new inputs of the body, of the slots that are small."""
        self.arrays: dict[Slot, Variable] = {}
        """Inputs of known shapes, for those that stay arrays."""
        self.shapes = shapes
        for slot, shape in shapes.items():
            is_state = slot.kind is SlotKind.STATE
            is_small = self.unrolling.is_small(shape)
            if is_state and not is_small:
                continue
            (inner,) = slot.inner_inputs
            if is_small and slot not in kept:
                self.entries[slot] = fresh(inner.type, shape)
            # An array that is a state is formed where it is read.
            if not is_state or slot in kept:
                self.arrays[slot] = inner.type.clone(shape=shape)()
            self.unrolling.set_input(inner, self.arrays.get(slot), self.entries.get(slot))
        inputs = [v for slot in view.slots for v in slot.inner_inputs]
        self.unrolling.compute(inputs, view.inner_outputs())

    @property
    def states(self) -> list[Slot]:
        """The states that are unrolled."""
        return [slot for slot in self.entries if slot.kind is SlotKind.STATE]

    def changing_states(self) -> list[Slot]:
        """Return the small states of which a step may change the shape."""
        found = []
        for slot in self.view.of_kind(SlotKind.STATE):
            if slot in self.entries or slot in self.arrays:
                entries = self.unrolling.entries(slot.inner_outputs[0])
                if entries is None or entries.shape != self.shapes[slot]:
                    found.append(slot)
        return found

    def outputs(self) -> list[Variable]:
        """Return what a step computes, without the arrays of unrolled states."""
        made = []
        for slot in self.view.outputs():
            (new,) = slot.inner_outputs
            found = self.unrolling.entries(new) if slot in self.entries else None
            made += [self.unrolling.array(new)] if found is None else found.ravel().tolist()
        if self.view.condition is not None:
            made.append(self.unrolling.array(self.view.condition))
        return made

    def computes(self, state: Slot) -> bool:
        """Whether a step computes a state entry by entry, or hands on another that it does."""
        (new,) = state.inner_outputs
        others = {slot.inner_inputs[0] for slot in self.states}
        return self.unrolling.is_computed(new) or new in others

    def groups(self) -> Iterable[ArrayGroup]:
        """Return the arrays that are computed entry by entry, in groups."""
        states = {slot.inner_inputs[0]: slot.inner_outputs[0] for slot in self.states}
        constants = self.view.of_kind(SlotKind.CONSTANT)
        return groups(self.unrolling, states, [v for slot in constants for v in slot.inner_inputs])

    def unknown(self) -> list[Slot]:
        """Return the inputs that nodes read as arrays for no other reason than unknown lengths."""
        slots = {
            variable: slot
            for slot in self.view.of_kind(SlotKind.STATE, SlotKind.CONSTANT)
            for variable in [self.arrays.get(slot, slot.inner_inputs[0])]
            if isinstance(variable.type, DenseTensorType) and None in variable.type.shape
        }
        read: set[Variable] = set()
        for node in self.unrolling.kept:
            inputs = slots.keys() & set(node.inputs)
            # To ask takes long, and the first node that says so is enough.
            if not inputs <= read and self.unrolling.lacks_length(node):
                read |= inputs
        return [slot for variable, slot in slots.items() if variable in read]

    def rebuild(self, context: PassContext, names: Mapping[Slot, str]) -> dict[Variable, Variable]:
        """Return replacements for the outputs of the loop, whose slots have ``names``."""
        view, array = self.view, self.unrolling.array
        read = set(ancestors(self.outputs()))
        slots: list[Slot] = []
        lasts: dict[Slot, list[Slot]] = {}
        for slot in view.slots:
            entries = self._entry_slots(slot, names[slot]) if slot in self.entries else []
            slot.inner_outputs = [array(v) for v in slot.inner_outputs]
            if slot in self.arrays:
                slot.inner_inputs = [self.arrays[slot]]
            elif slot in self.entries:
                # Downstream, the trace has rows of a known shape.
                shape = self.entries[slot].shape
                slot.inner_inputs = [v.type.clone(shape=shape)() for v in slot.inner_inputs]
            if slot.kind is SlotKind.CONSTANT:
                slots += [one for one in (*entries, slot) if one.inner_inputs[0] in read]
                continue
            slots += entries
            if entries and context.clients(slot.last):
                lasts[slot] = entries
                for one in entries:
                    one.last = one.inner_inputs[0].type()
            if not entries or context.clients(slot.outer_output):
                slots.append(slot)
        view.slots = slots
        if view.condition is not None:
            view.condition = array(view.condition)
        made = view.rebuild()
        for slot, entries in lasts.items():
            assert slot.last is not None
            numbers = vector([made.pop(one.last) for one in entries if one.last is not None])
            made[slot.last] = stacked(numbers.reshape(self.entries[slot].shape))
        return made

    def _entry_slots(self, slot: Slot, name: str) -> list[Slot]:
        """Return a slot for each entry of a state or constant, called after it."""
        outer: Any = slot.outer_input
        following: list[Any] = [self.unrolling.entries(v) for v in slot.inner_outputs]
        return [
            Slot(
                slot.kind,
                slot.position,
                slot.taps,
                slot.out_taps,
                [number],
                [new[place] for new in following if new is not None],
                outer_input=outer[place],
                argument=entry_name(name, place),
            )
            for place, number in np.ndenumerate(self.entries[slot])
        ]
