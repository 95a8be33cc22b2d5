"""The pullback of a traced loop: a traced loop that runs the steps from the last to the first.

It carries the cotangents of the states, and the sums of the cotangents of the constants. The
values that the derivative of a step reads are rows of the forward loop's traces. Random draws are
traced for it by a second forward loop, since not every backend can trace a generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytensor.tensor as pt
from pytensor.configdefaults import config
from pytensor.gradient import DisconnectedType, disconnected_type, grad
from pytensor.graph.basic import Variable
from pytensor.graph.null_type import NullType
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Add, ScalarType, identity
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.tensor.type import lscalar

from scanopt_cli.ir.inner_graphs import PULLBACK
from scanopt_cli.loop.body import Body, Symbolic
from scanopt_cli.loop.inner_sums import is_zero_of_any_sign, sums_of_inner_loops
from scanopt_cli.loop.operator_base import LoopOperator
from scanopt_cli.loop.trace_rows import as_type, has_array_trace, is_continuous, row


def pullback(
    op: LoopOperator,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> list[Variable]:
    """Return the cotangents of the inputs of a traced loop, given those of its outputs.

    An input has one if it is connected to an output that has one; the number of steps never has.
    """
    body = op.body
    n_steps, initial, constants = op.split(inputs)
    traces: Any  # the loop is a traced one
    of_traces: Any
    _, traces, _, n_done = op.split_outputs(outputs)
    n_done = n_done if op.is_while else n_steps
    of_last, of_traces, of_traced, _ = op.split_outputs(cotangents)
    reached = _reached(op, cotangents)
    live = [i for i, v in enumerate(initial) if reached[1 + i] and is_continuous(v)]
    summed = [
        i for i, v in enumerate(constants) if reached[1 + op.n_states + i] and is_continuous(v)
    ]

    # A step is differentiated as a graph of the forward body's variables.
    carried = {i: body.states[i].type() for i in live}
    pulled = {i: v.type() for i, v in enumerate(body.traced) if _is_connected(of_traced[i])}
    step_cotangents = vector_jacobian_product(
        [*(body.states[i] for i in live), *(body.constants[i] for i in summed)],
        [
            *((body.next_states[i], cotangent) for i, cotangent in carried.items()),
            *((body.traced[i], cotangent) for i, cotangent in pulled.items()),
        ],
    )
    undefined = next((v for v in step_cotangents if isinstance(v.type, NullType)), None)
    if undefined is not None:
        return [
            undefined if is_reached and is_continuous(v) else _none(v, is_reached)
            for v, is_reached in zip(inputs, reached, strict=True)
        ]

    # The values that it reads are those of the step that is undone.
    index, n = lscalar("index"), lscalar("n_steps")
    step = n - 1 - index
    values = {body.index: step}
    outer: dict[Variable, Any] = {n: n_done}
    outer |= dict(zip(body.constants, constants, strict=True))

    def read(trace: Variable, value: Variable) -> None:
        inner = trace.type()
        outer[inner] = trace
        values[value] = row(inner, step, value.type)

    for state, trace in zip(body.states, traces, strict=True):
        if has_array_trace(state.type):
            read(trace, state)
    for i, cotangent in pulled.items():
        read(of_traced[i], cotangent)
    drawn = _drawn(body, step_cotangents)
    for value, trace in zip(drawn, _trace(op, inputs, drawn, body), strict=True):
        read(trace, value)

    starts, next_states = [], []
    for i, of_step in zip(live, step_cotangents, strict=False):
        start = _start(initial[i], of_last[i], of_traces[i])
        if _is_connected(of_traces[i]):
            seen = body.states[i].type()
            read(of_traces[i], seen)
            of_step = of_step + seen
        starts.append(start)
        next_states.append(as_type(of_step, carried[i]))
    sums = [body.constants[i].type() for i in summed]
    computed, terms, next_states = sums_of_inner_loops(
        sums, step_cotangents[len(live) :], next_states
    )
    for i, (total, of_step) in enumerate(zip(sums, terms, strict=True)):
        starts.append(pt.zeros_like(constants[summed[i]]))
        following = computed[i] if i in computed else _added(total, of_step)
        next_states.append(as_type(following, total))
    backward = Body(
        index=index,
        states=[*carried.values(), *sums],
        next_states=graph_replace(next_states, values, strict=False),
    )
    results = dict(
        zip(
            (*live, *(op.n_states + i for i in summed)),
            type(op).over(n_done, backward, starts, outer, name=op.name and f"{PULLBACK}{op.name}"),
            strict=False,
        )
    )
    return [
        disconnected_type(),
        *(
            results[i] if i in results else _none(v, is_reached)
            for i, (v, is_reached) in enumerate(zip(inputs[1:], reached[1:], strict=True))
        ),
    ]


def _reached(op: LoopOperator, cotangents: Sequence[Variable]) -> list[bool]:
    """Return which inputs an output with a cotangent depends on."""
    of_traces: Any
    of_last, of_traces, of_traced, _ = op.split_outputs(cotangents)
    has_cotangent = [
        *(_is_connected(a) or _is_connected(b) for a, b in zip(of_last, of_traces, strict=True)),
        *map(_is_connected, of_traced),
    ]
    decided = op.reached()[1:]
    return [
        False,
        *(any(a and b for a, b in zip(row, has_cotangent, strict=True)) for row in decided),
    ]


def vector_jacobian_product(
    wrt: Sequence[Variable], known: Sequence[tuple[Variable, Variable]]
) -> list[Variable]:
    """Return the cotangents of ``wrt``, given pairs of variables and cotangents; zeros if none."""
    if not wrt:
        return []
    # A variable may be several outputs at once, and an input too.
    apart = {_copied(variable): cotangent for variable, cotangent in known}
    found: Any = grad(
        None,
        list(wrt),
        known_grads=apart,
        disconnected_inputs="ignore",
        return_disconnected="zero",
        null_gradients="return",
    )
    return list(found)


def _copied(variable: Symbolic) -> Symbolic:
    return identity(variable) if isinstance(variable.type, ScalarType) else variable.copy()


def _drawn(body: Body, step_cotangents: Sequence[Variable]) -> list[Variable]:
    """Return what ``step_cotangents`` read that depends on a state which no array can trace."""
    opaque = {state for state in body.states if not has_array_trace(state.type)}
    if not opaque:
        return []
    found = []
    for node in io_toposort(body.inputs, step_cotangents):
        if not opaque.isdisjoint(node.inputs):
            found += [v for v in node.outputs if has_array_trace(v.type)]
            opaque.update(v for v in node.outputs if not has_array_trace(v.type))
    return found


def _trace(
    op: LoopOperator, inputs: Sequence[Variable], drawn: Sequence[Variable], body: Body
) -> list[Variable]:
    """Return the traces of what the body computes, from a loop of its own."""
    if not drawn:
        return []
    n_steps, initial, constants = op.split(inputs)
    outer = dict(zip(body.constants, constants, strict=True))
    outputs = type(op).over(n_steps, replace(body, traced=drawn), initial, outer, name=op.name)
    return outputs[2 * op.n_states : -1]


def _start(initial: Symbolic, of_last: Symbolic, of_trace: Symbolic) -> Symbolic:
    """Return the cotangent of a state after the last step."""
    terms = [
        *([of_last] if _is_connected(of_last) else []),
        *([of_trace[-1]] if _is_connected(of_trace) else []),
    ]
    return sum(terms[1:], terms[0]) if terms else initial.zeros_like()


def _added(total: Symbolic, of_step: Symbolic) -> Symbolic:
    """Return ``total + of_step``, where a part of an array is added to that part only.

    A step that reads a row of a constant has a cotangent that is zero but for this row.
    """
    opened: set[Variable] = set()
    waiting = [of_step]
    while waiting:
        term = waiting.pop()
        op = term.owner_op
        # A sum that occurs again is added as a whole: written out, it may be exponentially long.
        if isinstance(op, Elemwise) and isinstance(op.scalar_op, Add) and term not in opened:
            opened.add(term)
            waiting += reversed(term.owner.inputs)
        else:
            total = _with_term(total, term)
    return total


def _with_term(total: Symbolic, term: Symbolic) -> Symbolic:
    op = term.owner_op
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor) and not op.set_instead_of_inc:
        array, part, *indices = term.owner.inputs
        if array.type.ndim == total.type.ndim and is_zero_of_any_sign(array):
            return op(total, part, *indices)
    return total + term


def _none(variable: Symbolic, is_reached: bool) -> Symbolic:
    """Return the cotangent of an input that has no derivative, or that decides nothing."""
    return (
        variable.zeros_like(dtype=config.floatX)
        if is_reached and has_array_trace(variable.type)
        else disconnected_type()
    )


def _is_connected(cotangent: Variable) -> bool:
    return not isinstance(cotangent.type, DisconnectedType)
