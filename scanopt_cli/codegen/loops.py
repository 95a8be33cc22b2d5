"""Loops over numbers and arrays, whose steps allocate nothing that they can keep."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.codegen.buffers import Buffer, Pool
from scanopt_cli.codegen.elementwise import Scope, over_entries
from scanopt_cli.codegen.graphs import GraphWriter, is_number_like, write_node
from scanopt_cli.codegen.values import Array, Length, Memory, Number, Other, Value
from scanopt_cli.loop.operators import Loop
from scanopt_cli.loop.row_access import ReadNumber, WriteEntries, WriteRow, checked_before

_LONG = ir.IntType(64)
_NEGATIVE = "a loop was asked for a negative number of steps"
_NO_ROW = "a step of a loop reads or writes a row that is not there"


@write_node.register(Loop)
def _loop(
    op: Loop,
    node: Apply,  # noqa: ARG001
    writer: GraphWriter,
    inputs: Sequence[Value],
) -> Sequence[Value] | None:
    n_steps, initial, constants = op.split(list(inputs))
    if not _has_rule(op, initial) or not isinstance(n_steps, Number):
        return None
    n = writer.length(n_steps)
    writer.fail_if(writer.is_less(n, 0), ValueError, _NEGATIVE)
    states = [_State.of(writer, op, i, value) for i, value in enumerate(initial)]
    _check_rows(writer, op, n, [state.first for state in states], constants)
    with _steps(writer, n) as steps:
        old = [state.value(writer) for state in states]
        values = [writer.count(steps.index), *old, *constants]
        made = writer.inner(op.fgraph, values)
        _exchange(writer, states, old, made)
        if op.is_while:
            goes_on = made[-1]
            assert isinstance(goes_on, Number)
            holds = writer.cast(goes_on, np.bool_).code
            with writer.builder.if_then(writer.builder.not_(holds), likely=False):
                writer.builder.branch(steps.end)
    return [state.last(writer) for state in states]


def _has_rule(op: Loop, initial: Sequence[Value]) -> bool:
    """Whether all states are numbers, arrays of unchanging shape, or arrays written in place."""
    body = op.fgraph
    if not is_number_like(body.inputs[0]) or any(isinstance(value, Other) for value in initial):
        return False
    states = body.inputs[1 : 1 + op.n_states]
    return all(
        isinstance(value, Number) == is_number_like(old)
        and (is_number_like(old) or _is_written(old, new) or all(kept))
        for value, old, new, kept in zip(
            initial, states, body.outputs, op.kept_lengths, strict=False
        )
    )


@dataclass(eq=False, slots=True)
class _State:
    """A state: a number, an array that a step writes in place, or one with buffers.

    ``place`` is where the number is kept, or the buffer that holds the array.
    """

    first: Value
    place: Any
    is_number: bool

    @classmethod
    def of(cls, writer: GraphWriter, op: Loop, i: int, initial: Value) -> _State:
        """Return a state, with its initial value in a place of its own."""
        old, new = op.fgraph.inputs[1 + i], op.fgraph.outputs[i]
        if isinstance(initial, Number):
            return cls(initial, writer.variable(initial), True)
        assert isinstance(initial, Array)
        memory = initial.memory
        if i in op.destroyed and (initial.is_contiguous or _is_written(old, new)):
            own = initial
            if memory.buffer is None:
                # The state has the reference now that the initial value had.
                if not memory.is_owned:
                    writer.keep(initial)
                own = replace(initial, memory=Memory(memory.info, is_owned=True))
                memory.is_owned = False
        else:
            own = writer.copied(initial)
        own.memory.n_users += 1
        buffer = None
        if not _is_written(old, new):
            buffer = own.memory.buffer or Buffer.of(writer.builder, own)
        return cls(own, buffer, False)

    def value(self, writer: GraphWriter) -> Value:
        """Return what stands for the state in a step."""
        if self.is_number:
            assert isinstance(self.first, Number)
            return Number(writer.builder.load(self.place), self.first.dtype)
        assert isinstance(self.first, Array)
        if self.place is None:
            return self.first
        memory = replace(self.place.memory(writer.builder), buffer=None, n_users=1)
        return replace(self.first, data=writer.builder.load(self.place.data), memory=memory)

    def last(self, writer: GraphWriter) -> Value:
        """Return the last value; its memory belongs to whoever uses it."""
        found = self.value(writer)
        if self.is_number or self.place is None:
            if isinstance(found, Array):
                found.memory.n_users -= 1
            return found
        assert isinstance(self.first, Array)
        assert isinstance(found, Array)
        is_buffer = self.first.memory.buffer is not None
        memory = Memory(found.memory.info, not is_buffer, buffer=self.place if is_buffer else None)
        return replace(found, memory=memory)


def _exchange(
    writer: GraphWriter, states: Sequence[_State], old: Sequence[Value], made: Sequence[Value]
) -> None:
    """Let the states have their next values, and buffers what memory they had."""
    builder = writer.builder
    buffered = [
        (state, before, _held(writer, new, old))
        for state, before, new in zip(states, old, made, strict=False)
        if isinstance(before, Array) and isinstance(new, Array) and state.place is not None
    ]
    # Who has the memory of a state now; the last one in such a row leaves its own to a buffer.
    heirs = {id(new.memory): before for _, before, new in buffered}
    for state, value in zip(states, made, strict=False):
        if isinstance(value, Number):
            builder.store(value.code, state.place)
    for state, before, new in buffered:
        state.place.hold(builder, new.data, new.memory.info)
        if new.memory.buffer is not None:
            while id(before.memory) in heirs:
                before = heirs[id(before.memory)]
            new.memory.buffer.hold(builder, before.data, before.memory.info)
    for value in made:
        if isinstance(value, Array) and not value.memory.n_users:
            writer.give_up(value.memory)


def _held(writer: GraphWriter, value: Array, old: Sequence[Value]) -> Array:
    """Return a next state as an array in a buffer, or in the memory of a state."""
    is_state = any(isinstance(v, Array) and v.memory is value.memory for v in old)
    if value.is_contiguous and (is_state or value.memory.buffer is not None):
        return value
    return writer.copied(value)


@dataclass(eq=False, slots=True)
class _Steps:
    """The code of the steps: the index, and the block after the loop."""

    index: Any
    end: Any


@contextmanager
def _steps(writer: GraphWriter, n: Length) -> Iterator[_Steps]:
    """Repeat what is written inside, whose memory is in buffers that are allocated before."""
    builder, function = writer.builder, writer.builder.function
    around = writer.pool
    before = builder.append_basic_block("loop.before")
    builder.branch(before)
    pool = Pool(builder, before, {id(block) for block in function.blocks}, around)
    head, body = builder.append_basic_block("loop.head"), builder.append_basic_block("loop.body")
    end = builder.append_basic_block("loop.end")
    place = cgutils.alloca_once(builder, _LONG)
    builder.position_at_end(head)
    index = builder.load(place)
    builder.cbranch(builder.icmp_signed("<", index, writer.code(n)), body, end)
    builder.position_at_end(body)
    writer.pool = pool
    yield _Steps(index, end)
    builder.store(builder.add(index, _LONG(1)), place)
    builder.branch(head)
    builder.position_at_end(pool.before)
    builder.store(_LONG(0), place)
    builder.branch(head)
    builder.position_at_end(end)
    writer.pool = around
    for buffer in pool.made:
        writer.release(replace(buffer.memory(builder), is_owned=True, buffer=None))
    for buffer in pool.taken:
        assert around is not None
        around.give_back(buffer)


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


def _check_rows(
    writer: GraphWriter, op: Loop, n: Length, states: Sequence[Value], constants: Sequence[Value]
) -> None:
    """Check the rows that no step checks: those of the first step and of the last one."""
    checks = checked_before(op.fgraph, op.n_states)
    if not checks:
        return
    values = [None, *states, *constants]
    with writer.builder.if_then(writer.is_less(0, n)):
        for check in checks:
            array = values[check.position]
            assert isinstance(array, Array)
            for index in (0, writer.subtract(n, 1)):
                (row,) = writer.inner(check.graph, [writer.count(index), *constants])
                assert isinstance(row, Number)
                at, length = writer.length(row), array.shape[0]
                is_low = writer.is_less(at, writer.subtract(0, length))
                outside = writer.builder.or_(is_low, writer.is_at_least(at, length))
                writer.fail_if(outside, IndexError, _NO_ROW)


def _row(writer: GraphWriter, array: Array, index: Value, *, is_checked: bool) -> Array:
    """Return a row of an array."""
    assert isinstance(index, Number)
    at, length = writer.length(index), array.shape[0]
    row = writer.chosen(writer.is_less(at, 0), writer.add(at, length), at)
    if is_checked:
        outside = writer.builder.or_(writer.is_less(row, 0), writer.is_at_least(row, length))
        writer.fail_if(outside, IndexError, "index is out of bounds")
    data = writer.entry(array, [row, *[0] * (array.ndim - 1)])
    return replace(array, data=data, shape=array.shape[1:], strides=array.strides[1:])


@write_node.register(ReadNumber)
def _read_number(
    op: ReadNumber,
    node: Apply,  # noqa: ARG001
    writer: GraphWriter,
    inputs: Sequence[Value],
) -> Sequence[Value] | None:
    array, index = inputs
    if not isinstance(array, Array):
        return None
    row = _row(writer, array, index, is_checked=False)
    return [writer.load(writer.entry(row, op.entry), row.dtype)]


@write_node.register(WriteRow)
def _write_row(
    op: WriteRow,
    node: Apply,  # noqa: ARG001
    writer: GraphWriter,
    inputs: Sequence[Value],
) -> Sequence[Value] | None:
    array, index, value = inputs
    if not isinstance(array, Array) or isinstance(value, Other):
        return None
    row = _row(writer, array, index, is_checked=op.is_checked)
    if isinstance(value, Array):
        if value.ndim != row.ndim:
            return None
        for length, wanted in zip(value.shape, row.shape, strict=True):
            if not (isinstance(length, int) and length == 1):
                writer.fail_if(
                    writer.differs(length, wanted), ValueError, "a row has another length"
                )
    scope = Scope(writer)

    def put(at: Sequence[Length]) -> None:
        _put(writer, scope.read(value, at), row, at, adds=op.adds)

    over_entries(writer, row.shape, put)
    return [array]


@write_node.register(WriteEntries)
def _write_entries(
    op: WriteEntries,
    node: Apply,  # noqa: ARG001
    writer: GraphWriter,
    inputs: Sequence[Value],
) -> Sequence[Value] | None:
    array, index, *values = inputs
    if not isinstance(array, Array) or len(values) != prod(op.shape):
        return None
    row = _row(writer, array, index, is_checked=op.is_checked)
    writer.checked(row.shape, op.shape)
    for at, value in zip(np.ndindex(*op.shape), values, strict=True):
        assert isinstance(value, Number)
        _put(writer, value, row, at, adds=op.adds)
    return [array]


def _put(
    writer: GraphWriter, number: Number, row: Array, at: Sequence[Length], *, adds: bool
) -> None:
    place: Any = writer.entry(row, at)
    if adds:
        number = writer.called(operator.add, writer.load(place, row.dtype), number)
    writer.store(number, place, row.dtype)
