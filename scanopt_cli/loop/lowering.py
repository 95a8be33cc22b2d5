"""Lowering a `TracedLoop` to a `Loop`: what is read of its traces becomes a buffer that is carried.

A trace is written row by row into a buffer that is allocated before the loop. States and traces
that affect nothing that is read are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.type import lscalar
from pytensor.typed_list.basic import make_list

from scanopt_cli.loop.body import Body, Symbolic
from scanopt_cli.loop.operators import Loop, TracedLoop
from scanopt_cli.loop.shapes import traced_shapes
from scanopt_cli.loop.trace_rows import has_array_trace, trace_type, with_row


def lowered(node: Apply, read: Collection[int]) -> dict[int, Variable]:
    """Return those outputs of a traced loop that are at the positions ``read``, by a `Loop`.

    Raises
    ------
    TypeError
        If a trace is read whose rows are no tensors, and that is not the trace of a state.
    """
    op = node.op
    assert isinstance(op, TracedLoop)
    n_steps, initial, constants = op.split(node.inputs)
    body = op.body
    last, traces, traced, n_done = op.split_outputs(range(len(node.outputs)))
    counted = op.is_while and any(i in read for i in (*traces, *traced, n_done))
    computed = zip((*traces, *traced), (*body.next_states, *body.traced), strict=True)
    kept = _needed_states(
        body,
        [i for i in range(op.n_states) if last[i] in read],
        [value for output, value in computed if output in read],
    )

    states = [body.states[i] for i in kept]
    starts = [initial[i] for i in kept]
    next_states = [body.next_states[i] for i in kept]
    place = {last[i]: position for position, i in enumerate(kept)}

    def carry(output: int, start: Variable, index: Symbolic, value: Variable) -> None:
        buffer = start.type()
        place[output] = len(states)
        states.append(buffer)
        starts.append(start)
        next_states.append(with_row(buffer, index, value))

    for i, output in enumerate(traces):
        if output in read:
            start = _trace_with_start(n_steps, initial[i])
            carry(output, start, body.index + 1, body.next_states[i])
    if any(output in read for output in traced):
        outer_values = [*initial, *constants]
        shapes = traced_shapes(op, outer_values, n_steps=n_steps)
        for value, shape, output in zip(body.traced, shapes, traced, strict=True):
            if output in read:
                start = _empty(value, [n_steps, *(shape or ())])
                carry(output, start, body.index, value)
    if counted:
        count = lscalar("n_done")
        place[n_done] = len(states)
        states.append(count)
        starts.append(pt.constant(0, dtype="int64"))
        next_states.append(pt.as_tensor_variable(body.index) + 1)

    smaller = replace(body, states=states, next_states=next_states, traced=[])
    outer = dict(zip(body.constants, constants, strict=True))
    results = Loop.over(n_steps, smaller, starts, outer, name=op.name) if states else []
    found: dict[int, Symbolic] = {i: results[place[i]] for i in read if i in place}
    if n_done in read:
        found.setdefault(n_done, n_steps)
    if counted:
        done: Symbolic = results[place[n_done]]
        found |= {
            i: found[i][: done + 1] for i in traces if i in read and has_array_trace(found[i].type)
        }
        found |= {i: found[i][:done] for i in traced if i in read}
    return {i: node.outputs[i].type.filter_variable(v) for i, v in found.items()}


def _needed_states(body: Body, read: Sequence[int], values: Sequence[Variable]) -> list[int]:
    """Return which states are read, decide what is read, or decide when the loop ends."""
    place = {state: i for i, state in enumerate(body.states)}
    needed = set(read)
    condition = [] if body.condition is None else [body.condition]
    waiting = [*values, *condition, *(body.next_states[i] for i in read)]
    while waiting:
        found = {place[v] for v in explicit_graph_inputs(waiting) if v in place} - needed
        waiting = [body.next_states[i] for i in found]
        needed |= found
    return sorted(needed)


def _trace_with_start(n_steps: Symbolic, initial: Symbolic) -> Symbolic:
    """Return a trace whose row 0 is the initial value, with room for one row a step."""
    if not has_array_trace(initial.type):
        return make_list([initial])
    initial = pt.as_tensor_variable(initial)
    return pt.set_subtensor(_empty(initial, [n_steps + 1, *initial.shape])[0], initial)


def _empty(value: Variable, shape: Sequence[Symbolic]) -> Symbolic:
    """Return room for values of the type of ``value``."""
    if not has_array_trace(value.type):
        raise TypeError(f"values of type {value.type} have no trace, unless they are a state")
    room: Symbolic = AllocEmpty(value.type.dtype)(*shape)
    room.tag.nan_guard_mode_check = False
    return trace_type(value.type).filter_variable(room)
