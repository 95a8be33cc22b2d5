"""Lengths that JAX must know when it traces: numbers of steps, bounds of slices, shapes.

In JAX the shape of an array is known when a function is traced, but what ``jnp`` computes of it, as
the smaller of two lengths, is not: a loop of so many steps cannot be differentiated, and a slice of
so many rows cannot be taken. Here such a computation becomes one Op, which JAX evaluates while it
traces if all that it depends on is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import graph_rewriter
from pytensor.graph.traversal import walk
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import Alloc, AllocEmpty, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType, discrete_dtypes

from scanopt_cli.loop.operator_base import LoopOperator


class StaticLength(OpFromGraph):
    """A whole number that is computed of lengths."""


def make_lengths_static(fgraph: FunctionGraph) -> None:
    """Compute by a `StaticLength` each number that JAX must know and that is computed of others.

    What depends on values of arrays too stays unknown, and is computed as before.
    """
    for length in dict.fromkeys(v for node in fgraph.toposort() for v in _lengths(node)):
        leaves = _leaves(length)
        if leaves:
            static: Any = StaticLength(leaves, [length])(*leaves)
            fgraph.replace(length, static, reason="static_lengths")


@graph_rewriter  # type: ignore[untyped-decorator]
def static_lengths(fgraph: FunctionGraph) -> None:
    """Make lengths static in a graph that holds a loop."""
    if any(isinstance(node.op, LoopOperator) for node in fgraph.apply_nodes):
        make_lengths_static(fgraph)


def _lengths(node: Apply) -> list[Variable]:
    """Return the inputs of a node that JAX must know if it is to differentiate or to slice."""
    match node.op:
        case LoopOperator():
            n_steps, _, constants = node.op.split(node.inputs)
            inputs = [n_steps, *constants]
        case AllocEmpty():
            inputs = node.inputs
        case Alloc() | Subtensor():
            inputs = node.inputs[1:]
        case IncSubtensor():
            inputs = node.inputs[2:]
        case _:
            return []
    return [v for v in inputs if _is_number(v) and _is_computed(v)]


def _leaves(length: Variable) -> list[Variable]:
    """Return the numbers that ``length`` is computed of; none if of anything else."""

    def parts(variable: Variable) -> Sequence[Variable] | None:
        return variable.owner.inputs if _is_computed(variable) else None

    leaves = [v for v in walk([length], parts, bfs=False) if not _is_computed(v)]
    is_whole = all(map(_is_number, leaves))
    return [v for v in leaves if is_whole and not isinstance(v, Constant)]


def _is_computed(variable: Variable) -> bool:
    return variable.owner is not None and isinstance(
        variable.owner.op, Elemwise | ScalarFromTensor | TensorFromScalar
    )


def _is_number(variable: Variable) -> bool:
    """Whether a variable is one whole number or truth value."""
    kind = variable.type
    is_scalar = isinstance(kind, ScalarType) or (isinstance(kind, TensorType) and kind.ndim == 0)
    return is_scalar and kind.dtype in discrete_dtypes
