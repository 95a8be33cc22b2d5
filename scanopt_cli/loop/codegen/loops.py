"""Loops over numbers and arrays, whose steps allocate nothing that they can keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from pytensor.graph.basic import Apply

from scanopt_cli.loop.association import has_only_totals
from scanopt_cli.loop.codegen.buffers import Pool
from scanopt_cli.loop.codegen.distribution import AT_ONCE, MOST_STEPS, StepsInParts
from scanopt_cli.loop.codegen.equal_loops import called_once_written
from scanopt_cli.loop.codegen.graphs import GraphWriter, write_node
from scanopt_cli.loop.codegen.hints import WRITTEN_ONCE, hint
from scanopt_cli.loop.codegen.states import (
    Register,
    State,
    go_on,
    on_the_stack,
    states_of,
    unread,
)
from scanopt_cli.loop.codegen.values import Array, Length, Number, Value
from scanopt_cli.loop.operators import Loop
from scanopt_cli.loop.recurrences import FEWEST_STEPS, DistributedBody, distributed
from scanopt_cli.loop.row_access import checked_before

_LONG = ir.IntType(64)
_ALONE = 8192
"""So many steps are done one after the other when some cannot be done in parts."""
_NEGATIVE = "a loop was asked for a negative number of steps"
_NO_ROW = "a step of a loop reads or writes a row that is not there"


@write_node.register(Loop)
def _loop(op: Loop, node: Apply, writer: GraphWriter, inputs: Sequence[Value]) -> Sequence[Value]:
    write = partial(_in_place, writer, op)
    found = called_once_written(writer, op, inputs, write)
    return write(inputs) if found is None else found


def _in_place(writer: GraphWriter, op: Loop, inputs: Sequence[Value]) -> Sequence[Value]:
    """Write a loop where the builder is."""
    n_steps, initial, constants = op.split(list(inputs))
    assert isinstance(n_steps, Number)
    n = writer.length(n_steps)
    writer.fail_if(writer.is_less(n, 0), ValueError, _NEGATIVE)
    states = states_of(writer, op, initial)
    constants = _near(writer, op, constants)
    _check_rows(writer, op, n, [state.value(writer) for state in states], constants)
    body = distributed(op.fgraph, op.n_states) if op.in_parts else None
    alone_until = None if body is None else cgutils.alloca_once_value(writer.builder, _LONG(0))
    with _steps(writer, n) as steps:
        if body is not None:
            _steps_in_parts(writer, body, n, steps, alone_until, states, constants)
        old = [state.value(writer) for state in states]
        values = [writer.count(steps.index), *old, *constants]
        outside, places = writer.waits_for_states, writer.places
        writer.places = unread(op, states, old)
        steps.wait = writer.waits_for_states = not has_only_totals(op.fgraph, op.n_states)
        made = writer.inner(op.fgraph, values)
        writer.waits_for_states, writer.places = outside, places
        go_on(writer, states, old, made)
        if op.is_while:
            goes_on = made[-1]
            assert isinstance(goes_on, Number)
            holds = writer.cast(goes_on, np.bool_).code
            with writer.builder.if_then(writer.not_(holds), likely=False):
                writer.builder.branch(steps.end)
    return [state.last(writer) for state in states]


def _near(writer: GraphWriter, op: Loop, constants: Sequence[Value]) -> list[Value]:
    """Return constants of a loop, of which small arrays are copied to the stack."""
    found: list[Value] = []
    for variable, value in zip(op.fgraph.inputs[1 + op.n_states :], constants, strict=True):
        made = on_the_stack(writer, variable, value) if isinstance(value, Array) else None
        found.append(value if made is None else made)
    return found


@dataclass(eq=False, slots=True)
class _Steps:
    """The code of the steps.

    Attributes
    ----------
    index
        The index of a step.
    place
        Where it is kept, from step to step.
    head, end
        The blocks that begin a step, and that follow the loop.
    wait
        Whether steps wait for states.
    """

    index: Any
    place: Any
    head: Any
    end: Any
    wait: bool = False


def _steps_in_parts(
    writer: GraphWriter,
    body: DistributedBody,
    n: Length,
    steps: _Steps,
    alone_until: Any,
    states: Sequence[State],
    constants: Sequence[Value],
) -> None:
    """Write many steps, in parts, after which the loop goes on; what follows is one step alone.

    If they are not sure to be good, the steps before the index ``alone_until`` are done alone.
    """
    builder, index = writer.builder, steps.index
    several, good, bad, alone = (
        builder.append_basic_block(f"loop.{name}") for name in ("several", "good", "bad", "alone")
    )
    left = writer.subtract(n, index)
    count = writer.smaller(writer.multiply(writer.quotient(left, AT_ONCE), AT_ONCE), MOST_STEPS)
    is_due = writer.is_at_least(index, builder.load(alone_until))
    builder.cbranch(builder.and_(is_due, writer.is_at_least(count, FEWEST_STEPS)), several, alone)

    builder.position_at_end(several)
    builder.assume(writer.is_at_least(index, 0))
    outside, writer.waits_for_states = writer.waits_for_states, True
    old = [state.value(writer) for state in states]
    parts = StepsInParts(writer, body, index, count, old, constants)
    builder.cbranch(parts.write(), good, bad)

    builder.position_at_end(good)
    for i, state in enumerate(states):
        if isinstance(state, Register):
            state.hold(writer, parts.last(i))
    builder.store(builder.add(index, writer.code(count)), steps.place)
    builder.branch(steps.head)

    builder.position_at_end(bad)
    builder.store(builder.add(index, _LONG(_ALONE)), alone_until)
    builder.branch(alone)

    builder.position_at_end(alone)
    writer.waits_for_states = outside


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
    steps = _Steps(index, place, head, end)
    yield steps
    builder.store(builder.add(index, _LONG(1)), place)
    again = builder.branch(head)
    if steps.wait:
        hint(again, WRITTEN_ONCE)  # several steps would wait for one another
    builder.position_at_end(pool.before)
    builder.store(_LONG(0), place)
    builder.branch(head)
    builder.position_at_end(end)
    writer.pool = around
    for buffer in pool.made:
        if buffer.is_on_stack:
            continue
        writer.release(replace(buffer.memory(builder), is_owned=True, buffer=None))
    for buffer in pool.taken:
        assert around is not None
        around.give_back(buffer)


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
                outside = writer.either(is_low, writer.is_at_least(at, length))
                writer.fail_if(outside, IndexError, _NO_ROW)
