"""The pushforward of a traced loop: the same loop, which carries the tangents of states as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Variable
from pytensor.graph.op import io_connection_pattern
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import explicit_graph_inputs

from scanopt_cli.ir.inner_graphs import TANGENTS
from scanopt_cli.loop.body import Symbolic
from scanopt_cli.loop.operator_base import LoopOperator
from scanopt_cli.loop.pullback import vector_jacobian_product
from scanopt_cli.loop.trace_rows import as_type, is_continuous


def _by_pullbacks(
    outputs: Sequence[Symbolic], inputs: Sequence[Variable], tangents: Sequence[Variable]
) -> Sequence[Variable]:
    """Push tangents through a graph by two pullbacks, which all Ops have.

    The pullback is linear in the cotangents, and the pullback of this linear function maps tangents
    to tangents (J. Towns, "A new trick for calculating Jacobian vector products", 2017). That of
    PyTensor loses terms: of ``x + sin(z)`` it keeps the tangent of ``x`` only (tests/upstream).

    Raises
    ------
    NotImplementedError
        If a pullback is not linear: that of a clipped gradient.
    """
    cotangents = [output.type() for output in outputs]
    pulled = vector_jacobian_product(inputs, list(zip(outputs, cotangents, strict=True)))
    pushed = vector_jacobian_product(cotangents, list(zip(pulled, tangents, strict=True)))
    if np.any(io_connection_pattern(cotangents, pushed)):
        raise NotImplementedError("a step has a pullback that is not linear")
    # Only their shapes are left.
    zeros = {v: output.zeros_like() for v, output in zip(cotangents, outputs, strict=True)}
    left = zeros.keys() & set(explicit_graph_inputs(pushed))
    return graph_replace(pushed, {v: zeros[v] for v in left}) if left else pushed


def pushforward(
    op: LoopOperator,
    inputs: Sequence[Variable],
    tangents: Sequence[Variable],
) -> list[Variable]:
    """Return the tangents of the outputs of a traced loop, given those of its inputs.

    An output that depends on no input with a tangent has none (a variable of type
    DisconnectedType).
    """
    body = op.body
    n_steps, initial, constants = op.split(inputs)
    has_tangent = [
        not isinstance(tangent.type, DisconnectedType) and is_continuous(v)
        for v, tangent in zip(inputs, tangents, strict=True)
    ]
    is_active = [
        any(row[i] for row, is_given in zip(op.reached(), has_tangent, strict=True) if is_given)
        and is_continuous(output)
        for i, output in enumerate([*body.next_states, *body.traced])
    ]
    active_states = [i for i in range(op.n_states) if is_active[i] or has_tangent[1 + i]]
    traced = [i for i, is_it in enumerate(is_active[op.n_states :]) if is_it]
    active_constants = [i for i, v in enumerate(constants) if has_tangent[1 + op.n_states + i]]

    of_states = {i: body.states[i].type() for i in active_states}
    of_constants = {i: body.constants[i].type() for i in active_constants}
    pushed = _by_pullbacks(
        [*(body.next_states[i] for i in active_states), *(body.traced[i] for i in traced)],
        [*(body.states[i] for i in active_states), *(body.constants[i] for i in active_constants)],
        [*of_states.values(), *of_constants.values()],
    )
    wider = replace(
        body,
        states=[*body.states, *of_states.values()],
        next_states=[
            *body.next_states,
            *(as_type(new, old) for new, old in zip(pushed, of_states.values(), strict=False)),
        ],
        traced=list(pushed[len(active_states) :]),
    )
    starts = [
        tangents[1 + i] if has_tangent[1 + i] else initial[i].zeros_like() for i in active_states
    ]
    outer = dict(zip(body.constants, constants, strict=True))
    outer |= {of_constants[i]: tangents[1 + op.n_states + i] for i in active_constants}
    name = op.name and f"{TANGENTS}{op.name}"
    outputs = type(op).over(n_steps, wider, [*initial, *starts], outer, name=name)

    n = op.n_states + len(active_states)
    found: list[Variable] = [
        disconnected_type() for _ in range(2 * op.n_states + len(body.traced) + 1)
    ]
    for position, i in enumerate(active_states, start=op.n_states):
        found[i], found[op.n_states + i] = outputs[position], outputs[n + position]
    for i, output in zip(traced, outputs[2 * n :], strict=False):
        found[2 * op.n_states + i] = output
    return found
