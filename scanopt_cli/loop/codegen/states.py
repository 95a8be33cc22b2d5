"""Where the states of a loop are, from step to step.

- A number is in a register.
- The entries of a small array of known lengths are copied to one place on the stack, which LLVM
  keeps in registers, too.
- An array that a step writes in place stays where it is.
- An array that keeps its shape is in a buffer, which it exchanges with the one that its next value
  is computed in.
- What may change its shape, a generator of random numbers, or a list is a value of Numba's with a
  reference of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numba.core import cgutils
from pytensor.graph.basic import Variable
from pytensor.link.numba.dispatch.compile_ops import numba_deepcopy
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.loop.codegen.entries import overlap
from scanopt_cli.loop.codegen.graphs import GraphWriter, is_number_like
from scanopt_cli.loop.codegen.lengths import is_same
from scanopt_cli.loop.codegen.values import Array, Buffer, Memory, Number, Other, Value
from scanopt_cli.loop.operators import Loop
from scanopt_cli.loop.row_access import WriteRow
from scanopt_cli.loop.shapes import next_lengths


class State(Protocol):
    """A state of a loop that is being written."""

    def value(self, writer: GraphWriter) -> Value:
        """Return what stands for the state in a step."""

    def last(self, writer: GraphWriter) -> Value:
        """Return what stands for the state after the loop; its memory is whoever's uses it."""


def states_of(writer: GraphWriter, op: Loop, initial: Sequence[Value]) -> list[State]:
    """Return the states of a loop with their initial values, copied unless they may be lost."""
    kept = _keep_shapes(op, initial)
    return [
        _state_of(writer, op, i, value, keeps_shape=keeps_shape)
        for i, (value, keeps_shape) in enumerate(zip(initial, kept, strict=True))
    ]


def _keep_shapes(op: Loop, initial: Sequence[Value]) -> list[bool]:
    """Return which states have the shapes of their initial values in each step.

    A step may give them their own lengths, or those of states that start with equal lengths and
    keep them.
    """
    following = next_lengths(op.fgraph, op.n_states)
    shapes = [
        value.shape if isinstance(value, Array) else (1,) * len(dims)
        for value, dims in zip(initial, following, strict=True)
    ]
    kept = {(i, dim) for i, dims in enumerate(following) for dim in range(len(dims))}

    def stays(i: int, dim: int) -> bool:
        return (i, dim) in following[i][dim] or any(
            place in kept and is_same(shapes[place[0]][place[1]], shapes[i][dim])
            for place in following[i][dim]
        )

    while gone := {place for place in kept if not stays(*place)}:
        kept -= gone
    return [all((i, dim) in kept for dim in range(len(dims))) for i, dims in enumerate(following)]


def _state_of(writer: GraphWriter, op: Loop, i: int, initial: Value, *, keeps_shape: bool) -> State:
    old, new = op.fgraph.inputs[1 + i], op.fgraph.outputs[i]
    may_lose = i in op.destroyed
    if is_number_like(old):
        assert isinstance(initial, Number)
        return Register(writer.variable(initial), initial.dtype)
    is_written = _is_written(old, new)
    if isinstance(initial, Number):
        initial = writer.as_array(initial, getattr(old.type, "ndim", 0))
        may_lose = True
    if isinstance(initial, Other) or not (is_written or keeps_shape):
        return _counted(writer, initial, may_lose=may_lose)
    assert isinstance(initial, Array)
    # What is only written, as a trace is, may be where its initial value is.
    is_read = not is_written or _count_readers(op, old) > 1
    if is_read and (found := on_the_stack(writer, old, initial)) is not None:
        return _OnStack(found)
    is_kept = not may_lose or initial.memory.within  # the rest of which others may use
    if is_kept or not (initial.is_contiguous or is_written):
        own = writer.copied(initial)
    elif initial.memory.buffer is not None:
        is_whole = initial.memory.buffer.has_size(initial.shape)
        own = initial if is_written or is_whole else writer.copied(initial)
    else:
        # The state has the reference now that the initial value had.
        if not initial.memory.is_owned:
            writer.keep(initial)
        own = replace(initial, memory=Memory(initial.memory.info, is_owned=True))
        initial.memory.is_owned = False
    own.memory.n_users += 1
    if is_written:
        return _InPlace(own)
    return _Buffered(own, own.memory.buffer or Buffer.of(writer.builder, own))


def on_the_stack(writer: GraphWriter, variable: Variable, array: Array) -> Array | None:
    """Return a copy on the stack of an array that stands for a variable, if it is small.

    Nothing that a step writes is in the same memory, as LLVM can see.
    """
    known = variable.type.shape
    shape = [n if m is None else m for n, m in zip(array.shape, known, strict=True)]
    buffer = writer.room(array.dtype, shape)
    if buffer is None:
        return None
    made = writer.held(buffer, array.dtype, writer.checked(array.shape, known))
    made.memory.n_users += 1  # as long as the loop runs
    writer.copy(array, made)
    return made


def unread(op: Loop, states: Sequence[State], old: Sequence[Value]) -> dict[Variable, Array]:
    """Return the memory of states that no step reads, by their next values, which fit in there.

    ``old`` are the values of the states in the step.
    """
    graph = op.fgraph
    read = {*graph.outputs, *(v for node in graph.apply_nodes for v in node.inputs)}
    found: dict[Variable, Array] = {}
    for i, (state, value) in enumerate(zip(states, old, strict=True)):
        is_free = isinstance(state, _Buffered) and graph.inputs[1 + i] not in read
        if is_free and isinstance(value, Array):
            found[graph.outputs[i]] = value
    return found


def _is_written(state: Variable, output: Variable) -> bool:
    """Whether a next state is the array of the state, of which parts may be written."""
    while output is not state:
        node = output.owner
        if node is None or not (
            isinstance(node.op, WriteRow) or (isinstance(node.op, IncSubtensor) and node.op.inplace)
        ):
            return False
        output = node.inputs[0]
    return True


def _count_readers(op: Loop, variable: Variable) -> int:
    return sum(v is variable for node in op.fgraph.apply_nodes for v in node.inputs)


def go_on(
    writer: GraphWriter, states: Sequence[State], old: Sequence[Value], made: Sequence[Value]
) -> None:
    """Let the states have their next values, and give up what no state is.

    ``old`` are their values in the step, and ``made`` what the step made, with the next values
    first.
    """
    triples = list(zip(states, old, made, strict=False))
    numbers = [(s, v) for s, _, v in triples if isinstance(s, Register) and isinstance(v, Number)]
    places = {
        id(before.memory): state.place
        for state, before, _ in triples
        if isinstance(state, _Buffered) and isinstance(before, Array)
    }
    memories = [
        before.memory
        for state, before, _ in triples
        if isinstance(state, _Counted) and not isinstance(before, Number)
    ]
    stacked = [
        (state, state.following(writer, new, states))
        for state, _, new in triples
        if isinstance(state, _OnStack) and isinstance(new, Array)
    ]
    counted = [
        (state, state.taken(writer, before, new, memories))
        for state, before, new in triples
        if isinstance(state, _Counted)
    ]
    buffered = [
        (state, before, _held(writer, before, new, places))
        for state, before, new in triples
        if isinstance(state, _Buffered) and isinstance(before, Array) and isinstance(new, Array)
    ]
    for register, number in numbers:
        register.hold(writer, number)
    for place, array in stacked:
        place.hold(writer, array)
    writer.give_up_all([*made, *(array for _, array in stacked)])
    for state, code in counted:
        state.store(writer, code)
    _exchange(writer, buffered)


def _exchange(writer: GraphWriter, buffered: Sequence[tuple[_Buffered, Array, Array]]) -> None:
    """Let states have the buffers of their next values, and these what memory the states had."""
    # Who has the memory of a state now; the last one in such a row leaves its own to a buffer.
    heirs = {id(new.memory): before for _, before, new in buffered}
    for state, before, new in buffered:
        state.place.hold(writer.builder, new.data, new.memory.info)
        if new.memory.buffer is not None:
            while id(before.memory) in heirs:
                before = heirs[id(before.memory)]
            new.memory.buffer.hold(writer.builder, before.data, before.memory.info)


def _held(writer: GraphWriter, before: Array, new: Array, places: Mapping[int, Buffer]) -> Array:
    """Return a next state as all of what a buffer holds, which may be that of a state.

    A part would not do: what the state had becomes the buffer's memory, and has less room.
    ``places`` are the buffers of states, by what memory they hold.
    """
    buffer = places.get(id(new.memory), new.memory.buffer)
    is_all = buffer is not None and buffer.has_size(new.shape) and not buffer.is_on_stack
    if new.is_contiguous and is_all:
        return new
    made = writer.allocate(new.dtype, before.shape)
    writer.copy(new, made)
    return made


@dataclass(eq=False, slots=True)
class Register:
    """A number."""

    place: Any
    dtype: np.dtype[Any]

    def value(self, writer: GraphWriter) -> Value:
        """Return the number in the register."""
        return Number(writer.builder.load(self.place), self.dtype)

    last = value

    def hold(self, writer: GraphWriter, number: Number) -> None:
        """Let the state have another value."""
        writer.builder.store(number.code, self.place)


@dataclass(eq=False, slots=True)
class _OnStack:
    """A small array."""

    array: Array

    def value(self, writer: GraphWriter) -> Value:
        return self.array

    def last(self, writer: GraphWriter) -> Value:
        return writer.copied(self.array)

    def following(self, writer: GraphWriter, new: Array, states: Sequence[State]) -> Array:
        """Return a next value, which is not in the memory of another one of the states."""
        if self._is_in_place(new):
            return new
        others = (state.array.memory for state in states if isinstance(state, _OnStack))
        return writer.copied(new) if any(overlap(new.memory, one) for one in others) else new

    def hold(self, writer: GraphWriter, new: Array) -> None:
        """Let the state have another value."""
        if not self._is_in_place(new):
            writer.copy(new, self.array)

    def _is_in_place(self, new: Array) -> bool:
        """Whether the step wrote a next value where the state is."""
        return new.data is self.array.data and new.strides == self.array.strides


@dataclass(eq=False, slots=True)
class _InPlace:
    """An array that a step writes in place."""

    array: Array

    def value(self, writer: GraphWriter) -> Value:
        return self.array

    def last(self, writer: GraphWriter) -> Value:
        self.array.memory.n_users -= 1
        return self.array


@dataclass(eq=False, slots=True)
class _Buffered:
    """An array that keeps its shape, in whichever memory its buffer holds."""

    first: Array
    place: Buffer

    def value(self, writer: GraphWriter) -> Value:
        memory = replace(self.place.memory(writer.builder), buffer=None, n_users=1)
        return replace(self.first, data=writer.builder.load(self.place.data), memory=memory)

    def last(self, writer: GraphWriter) -> Value:
        info = self.place.memory(writer.builder).info
        is_buffer = self.first.memory.buffer is not None
        memory = Memory(info, not is_buffer, buffer=self.place if is_buffer else None)
        return replace(self.first, data=writer.builder.load(self.place.data), memory=memory)


@dataclass(eq=False, slots=True)
class _Counted:
    """A value of Numba's with a reference of its own; of an array, its entries are contiguous."""

    place: Any
    kind: Any

    def value(self, writer: GraphWriter) -> Value:
        found = writer.from_numba(writer.builder.load(self.place), self.kind, is_owned=False)
        assert not isinstance(found, Number)
        found.memory.n_users = 1
        return found

    def last(self, writer: GraphWriter) -> Value:
        return writer.from_numba(writer.builder.load(self.place), self.kind, is_owned=True)

    def taken(
        self, writer: GraphWriter, before: Value, new: Value, states: Sequence[Memory]
    ) -> Any:
        """Return a next value with a reference of its own, as Numba represents it.

        ``states`` is the memory of the states that have references.
        """
        is_kept = isinstance(new, Array) and new.is_contiguous and self._may_have(new, states)
        ndim = before.ndim if isinstance(before, Array) else 0
        return writer.in_numba(writer.with_reference(new, ndim, is_copied=not is_kept))

    def _may_have(self, new: Array, states: Sequence[Memory]) -> bool:
        """Whether the memory of a next value was made in the step, or is that of such a state."""
        is_state = any(new.memory is other for other in states)
        return is_state or (_is_alone(new.memory) and not new.memory.n_users)

    def store(self, writer: GraphWriter, code: Any) -> None:
        """Replace the value."""
        writer.context.nrt.decref(writer.builder, self.kind, writer.builder.load(self.place))
        writer.builder.store(code, self.place)


def _is_alone(memory: Memory) -> bool:
    """Whether memory has a reference, and is not a part of other memory."""
    return memory.is_owned and memory.buffer is None and not memory.within


def _counted(writer: GraphWriter, initial: Value, *, may_lose: bool) -> _Counted:
    if isinstance(initial, Array):
        is_kept = may_lose and initial.is_contiguous and _is_alone(initial.memory)
        value: Value = writer.with_reference(initial, initial.ndim, is_copied=not is_kept)
    elif may_lose:
        value = writer.with_reference(initial, 0, is_copied=False)
    else:
        (value,) = writer.call(numba_deepcopy, [initial])
    assert isinstance(value, Array | Other)
    place = cgutils.alloca_once_value(writer.builder, writer.in_numba(value))
    return _Counted(place, value.numba_type)
