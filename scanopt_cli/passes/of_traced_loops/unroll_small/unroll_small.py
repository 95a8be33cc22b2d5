"""Compute the small arrays of a loop entry by entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.errors import PassError
from scanopt_cli.ir.naming import entry_name
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.of_traced_loops.unroll_small.array_entries import (
    MOST_ENTRIES,
    MOVES,
    Entries,
    Unrolling,
    fresh,
    stacked,
    vector,
)
from scanopt_cli.passes.of_traced_loops.unroll_small.groups import ArrayGroup, groups
from scanopt_cli.passes.of_traced_loops.unroll_small.rules import entries_of
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code, Why, because

_LARGEST = 64
"""The largest ``size``: a product of two 8x8 matrices takes 960 operations."""


@dataclass(frozen=True)
class UnrollSmall(TracedLoopPass):
    """Compute the small arrays of a TracedLoop entry by entry, so that a step works on numbers.

    A state, a constant or a row of a constant is small if its shape is known and has at most
    ``size`` entries; so is what a step computes of small arrays.

    Legal cases:

    1. Elementwise arithmetic, sums, products, extrema, ``all`` and ``any``.
    2. What moves entries: transposes, reshapes, joins, reads and writes at constant indices. One
       number that is written where a mask says is chosen for each entry.
    3. Products of vectors and matrices, outer products, diagonals; inverses, determinants,
       Cholesky factors, and solutions of systems of equations, triangular or not.
    4. An OpFromGraph (softmax, logsumexp), of which the graph inside is computed in its place.
    5. The same in a Blockwise, for each entry of the batch.
    6. A read of a row whose entries are small, of an array of any length.
    7. Reads and writes at integers that vary, of arrays that a step carries or computes: what is
       read is chosen among the entries, and each entry is written if the index is its own. An index
       that is out of bounds raises an IndexError, as before. All indices of a node choose among at
       most 64 entries; an array of one entry stays.

    Each entry of a small state becomes a state of its own. The array itself is formed only where it
    is traced, or read by a node that none of these cases covers; such nodes stay as they are.

    Preconditions: a step keeps the shape of a state, and computes at most 2,000 entries, counted
    with the terms that each adds up. No step works in place. Small arrays that are computed from
    each other, over all steps, are a group, which is unrolled if that saves more time than it
    takes: by an estimate, operations on arrays against the entries that are read from arrays which
    stay, or put into them. Rows of constants are read, and traces written, for nothing. A group
    that does little but elementwise arithmetic of four entries or more, such as a batch of
    subjects, or products of matrices, such as a Kalman filter of three states, stays as it is:
    compiled code has small arrays in registers, too, computes several entries of a vector at a
    time, and is compiled in a fraction of the time. What gains is linear algebra, choices among
    entries, and functions such as exp of few entries, which are computed for several steps at a
    time. With ``always``, all that is small becomes numbers.

    Sums and products of several terms are added from first to last, so the last digits may differ
    from those of PyTensor's order.
    """

    name: ClassVar[str] = "unroll-small"
    accepts_in_place: ClassVar[bool] = False
    size: int = 16
    """the most entries of an array that is unrolled, up to 64"""
    always: bool = False
    """whether arrays are unrolled even where compiled code is as fast with them"""

    def __post_init__(self) -> None:
        """Check the size."""
        if not 1 <= self.size <= _LARGEST:
            raise PassError(f"size is a number from 1 to {_LARGEST}, not {self.size}")

    def rewrite(self, view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop of numbers."""
        if not _computes_with_arrays(view):
            return None
        names = context.names(view)
        view.unfreeze()
        lengths = Lengths(view.n_steps)
        shapes = {
            slot: shape
            for slot in view.of_kind(SlotKind.STATE, SlotKind.CONSTANT)
            if (shape := _shape(slot, lengths)) is not None
        }
        kept: set[Slot] = set()
        left: set[Apply] = set()
        in_vectors = arrays_left = entries_left = 0
        while True:
            step = _Step(view, self.size, shapes, kept, left)
            changing = step.changing_states()
            for slot in changing:
                del shapes[slot]
            read = {slot for slot in step.states if slot in shapes and not step.computes(slot)}
            kept |= read
            if changing or read:
                continue
            losing = [group for group in step.groups() if not group.pays]
            if self.always or not losing:
                break
            for group in losing:
                left.update(group.nodes)
                kept |= {slot for slot in step.states if slot.inner_inputs[0] in group.inputs}
                if group.is_faster_in_vectors:
                    in_vectors += group.n_computed
                else:
                    arrays_left += group.n_computed
                    entries_left += group.n_crossing
        if in_vectors:
            context.missed(view, Code.SMALL_ARRAYS_LEFT, Why.VECTORS_FASTER, arrays=in_vectors)
        if arrays_left:
            context.missed(
                view,
                Code.SMALL_ARRAYS_LEFT,
                because(Why.ENTRIES_CROSS, entries=entries_left),
                arrays=arrays_left,
            )
        for slot in step.unknown():
            context.missed(view, Code.ARRAYS_KEPT, Why.LENGTH_UNKNOWN, names[slot])
        if step.unrolling.n_entries > MOST_ENTRIES:
            context.missed(view, Code.LOOP_LEFT, because(Why.ENTRIES_MANY, count=MOST_ENTRIES))
            return None
        # Arrays that are carried, and not traced, are formed after the loop.
        carried = [slot for slot in step.states if not context.clients(slot.outer_output)]
        if not step.unrolling.n_arrays and not carried:
            return None
        count = step.unrolling.n_arrays or len(carried)
        context.passed(view, Code.ARRAYS_UNROLLED, count=count)
        return step.rebuild(context, names)


type Shape = tuple[int | None, ...]


def _computes_with_arrays(view: LoopView) -> bool:
    """Whether a step carries arrays, or computes something of them or into them.

    Rows and entries that are only read are no reason to compute all nodes behind them anew.
    """
    states = (v for slot in view.of_kind(SlotKind.STATE) for v in slot.inner_inputs)
    computing = (node for node in view.op.fgraph.apply_nodes if not isinstance(node.op, MOVES))
    of_nodes = (v for node in computing for v in (*node.inputs, *node.outputs))
    return any(getattr(v.type, "ndim", 0) for v in chain(states, of_nodes))


def _shape(slot: Slot, lengths: Lengths) -> Shape | None:
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


class _Step:
    """The step of a loop, whose small arrays are computed entry by entry."""

    def __init__(
        self,
        view: LoopView,
        size: int,
        shapes: Mapping[Slot, Shape],
        kept: Set[Slot],
        left: Set[Apply],
    ) -> None:
        self.view = view
        self.unrolling = Unrolling(size, entries_of, left)
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
