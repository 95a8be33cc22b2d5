"""Sums of an inner loop, accumulated in the sum that the loop around it carries.

The cotangent of a constant is the sum of those of all steps. Where a step runs a loop, that loop
has a sum of its own, from zeros, which would be added to the outer one as a whole: for a long
sequence, in every step of the outer loop. Instead the inner loop goes on from the outer sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import io_toposort, variable_depends_on
from pytensor.scalar.basic import Add
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor

from scanopt_cli.loop.body import Symbolic
from scanopt_cli.loop.operator_base import LoopOperator

if TYPE_CHECKING:
    from pytensor.graph.fg import FrozenFunctionGraph


def sums_of_inner_loops(
    totals: Sequence[Symbolic], summands: Sequence[Symbolic], others: Sequence[Variable]
) -> tuple[dict[int, Variable], list[Variable], list[Variable]]:
    """Return the sums ``totals[i] + summands[i]`` that inner loops compute, by ``i``.

    Return ``summands`` and ``others``, which is what else a step computes, as well: they may read
    other outputs of these loops.
    """
    readers = _readers([*summands, *others])
    found: dict[Apply, dict[int, int]] = {}
    for i, (total, summand) in enumerate(zip(totals, summands, strict=True)):
        node = summand.owner
        if node is None or not isinstance(node.op, LoopOperator):
            continue
        position = node.outputs.index(summand)
        is_alone = readers[summand] == 1 and summand.type == total.type
        if is_alone and position < node.op.n_states and _is_sum_from_zero(node, position, readers):
            found.setdefault(node, {})[position] = i
    made: dict[Variable, Variable] = {}
    # One of these loops may read what another returns.
    for node in (node for node in io_toposort([], summands) if node in found):
        inputs = graph_replace(node.inputs, made, strict=False) if made else list(node.inputs)
        for position, i in found[node].items():
            inputs[1 + position] = totals[i]
        made |= zip(node.outputs, node.op.make_node(*inputs).outputs, strict=True)
    sums = {i: made[node.outputs[p]] for node, places in found.items() for p, i in places.items()}
    replaced = (
        graph_replace([*summands, *others], made, strict=False) if made else [*summands, *others]
    )
    return sums, replaced[: len(summands)], replaced[len(summands) :]


def _is_sum_from_zero(node: Apply, position: int, readers: Counter[Variable]) -> bool:
    """Whether an output is a sum that begins at zero, and its trace is not read."""
    n = node.op.n_states
    traces = node.outputs[n : 2 * n]
    is_traced = bool(traces) and readers[traces[position]]
    return (
        is_zero_of_any_sign(node.inputs[1 + position])
        and not is_traced
        and is_sum(node.op.fgraph, position)
    )


def is_sum(body: FrozenFunctionGraph, position: int) -> bool:
    """Whether each step adds to a state, and reads it for nothing else."""
    readers = _readers(body.outputs)
    state, value = body.inputs[1 + position], body.outputs[position]
    while value is not state:
        node = value.owner
        if node is None or readers[value] != 1:
            return False
        if isinstance(node.op, IncSubtensor | AdvancedIncSubtensor):
            if node.op.set_instead_of_inc:
                return False
            value = node.inputs[0]
        elif isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Add):
            terms = [v for v in node.inputs if variable_depends_on(v, state)]
            if len(terms) != 1 or terms[0].type != value.type:
                return False
            (value,) = terms
        elif isinstance(node.op, LoopOperator):
            place = node.outputs.index(value)
            if place >= node.op.n_states or not is_sum(node.op.fgraph, place):
                return False
            value = node.inputs[1 + place]
        else:
            return False
    return readers[state] == 1


def is_zero_of_any_sign(variable: Variable) -> bool:
    """Whether all entries of an array are provably 0."""
    try:
        return bool(get_underlying_scalar_constant_value(variable) == 0)
    except NotScalarConstantError:
        return False


def _readers(outputs: Sequence[Variable]) -> Counter[Variable]:
    """Return how often each variable is read, as an output or by a node."""
    nodes: Any = io_toposort([], outputs)
    return Counter([*outputs, *(v for node in nodes for v in node.inputs)])
