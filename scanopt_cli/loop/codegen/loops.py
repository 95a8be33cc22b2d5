"""Loops over numbers and arrays, whose steps allocate nothing that they can keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from pytensor.graph.basic import Apply

from scanopt_cli.loop.association import has_only_totals
from scanopt_cli.loop.codegen.buffers import Pool
from scanopt_cli.loop.codegen.graphs import GraphWriter, write_node
from scanopt_cli.loop.codegen.hints import WRITTEN_ONCE, hint
from scanopt_cli.loop.codegen.states import go_on, state_of
from scanopt_cli.loop.codegen.values import Array, Length, Number, Value
from scanopt_cli.loop.operators import Loop
from scanopt_cli.loop.row_access import checked_before

_LONG = ir.IntType(64)
_NEGATIVE = "a loop was asked for a negative number of steps"
_NO_ROW = "a step of a loop reads or writes a row that is not there"


@write_node.register(Loop)
def _loop(op: Loop, node: Apply, writer: GraphWriter, inputs: Sequence[Value]) -> Sequence[Value]:
    n_steps, initial, constants = op.split(list(inputs))
    assert isinstance(n_steps, Number)
    n = writer.length(n_steps)
    writer.fail_if(writer.is_less(n, 0), ValueError, _NEGATIVE)
    states = [state_of(writer, op, i, value) for i, value in enumerate(initial)]
    _check_rows(writer, op, n, [state.value(writer) for state in states], constants)
    with _steps(writer, n) as steps:
        old = [state.value(writer) for state in states]
        values = [writer.count(steps.index), *old, *constants]
        outside = writer.waits_for_states
        steps.wait = writer.waits_for_states = not has_only_totals(op.fgraph, op.n_states)
        made = writer.inner(op.fgraph, values)
        writer.waits_for_states = outside
        go_on(writer, states, old, made)
        if op.is_while:
            goes_on = made[-1]
            assert isinstance(goes_on, Number)
            holds = writer.cast(goes_on, np.bool_).code
            with writer.builder.if_then(writer.not_(holds), likely=False):
                writer.builder.branch(steps.end)
    return [state.last(writer) for state in states]


@dataclass(eq=False, slots=True)
class _Steps:
    """The code of the steps: the index, the block after the loop, and if steps wait for states."""

    index: Any
    end: Any
    wait: bool = False


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
    steps = _Steps(index, end)
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
