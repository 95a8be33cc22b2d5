"""The shapes of states and of traced values, as far as they are known before a loop runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, walk
from pytensor.raise_op import Assert
from pytensor.scalar.basic import EQ, ScalarType
from pytensor.tensor.basic import MakeVector, ScalarFromTensor
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import All
from pytensor.tensor.rewriting.shape import ShapeFeature
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.variable import TensorVariable

from scanopt_cli.ir.remembering import remembered
from scanopt_cli.loop.body import Body, HasBody, Symbolic

type Shape = tuple[Symbolic, ...]


@remembered
def kept_lengths(graph: FrozenFunctionGraph, n_states: int) -> tuple[tuple[bool, ...], ...]:
    """Return for each state and dimension, whether every step provably keeps its length."""
    return tuple(
        tuple((state, dim) in equal for dim, equal in enumerate(dims))
        for state, dims in enumerate(next_lengths(graph, n_states))
    )


@remembered
def next_lengths(
    graph: FrozenFunctionGraph, n_states: int
) -> tuple[tuple[frozenset[tuple[int, int]], ...], ...]:
    """Return for each state and dimension, which lengths of states a step provably gives it.

    Each is a state and a dimension. A length that the type of a state has is its own.
    """
    body = Body.of(graph, n_states, is_while=False)
    feature = ShapeFeature()
    positions = {state: i for i, state in enumerate(body.states)}

    def equal(state: Variable, dim: int, length: Variable) -> frozenset[tuple[int, int]]:
        found = {
            (positions[v.owner.inputs[0]], v.owner_op.i)
            for v in _asserted_equal(length)
            if isinstance(v.owner_op, Shape_i) and v.owner.inputs[0] in positions
        }
        own = {(positions[state], dim)} if state.type.shape[dim] is not None else set()
        return frozenset(found | own)

    return tuple(
        tuple(equal(state, dim, length) for dim, length in enumerate(feature.shape_tuple(new)))
        if isinstance(new, TensorVariable)
        else ()
        for state, new in zip(body.states, body.next_states, strict=False)
    )


def _asserted_equal(length: Variable) -> set[Variable]:
    """Return a length, and those that it is asserted to be equal to: those of an Elemwise's terms.

    Without the assertions themselves.
    """
    pairs = [
        {_asserted(term) for term in variable.owner.inputs}
        for assertion in ancestors([length])
        if isinstance(assertion.owner_op, Assert)
        for variable in _conjuncts(assertion.owner.inputs[1:])
    ]
    known = {_asserted(length)}
    while more := [pair for pair in pairs if pair & known and not pair <= known]:
        known.update(*more)
    return known


def _asserted(length: Variable) -> Variable:
    """Return the value of an assertion."""
    while isinstance(length.owner_op, Assert):
        length = length.owner.inputs[0]
    return length


def _conjuncts(conditions: Sequence[Variable]) -> list[Variable]:
    """Return the equations that all hold if ``conditions`` do."""

    def parts(condition: Variable) -> Sequence[Variable]:
        node = condition.owner
        is_every = node is not None and isinstance(node.op, ScalarFromTensor | MakeVector | All)
        return node.inputs if is_every else ()

    return [v for v in walk(conditions, parts) if _is_equation(v.owner_op)]


def _is_equation(op: Any) -> bool:
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, EQ)


def state_shapes(
    kept: Sequence[Sequence[bool]], initial: Sequence[Shape | None], outputs: Sequence[Variable]
) -> list[Shape | None]:
    """Return the shapes of the states after a loop, given those of their initial values.

    A length that a step may change is asked of the state's output.
    """
    return [
        shape
        and tuple(
            length if is_kept else Shape_i(dim)(output)
            for dim, (length, is_kept) in enumerate(zip(shape, dims, strict=True))
        )
        for dims, shape, output in zip(kept, initial, outputs, strict=True)
    ]


def traced_shapes(
    op: HasBody,
    outer: Sequence[Variable],
    *,
    n_steps: Variable | None = None,
    traces: Sequence[Variable] = (),
) -> list[Shape | None]:
    """Return the shapes of the values that each step computes to be traced.

    Parameters
    ----------
    outer
        The initial states and the constants of the loop.
    n_steps
        The number of steps. If it is given, a length that may change from step to step is that of
        the first step, of which what it depends on is then computed apart from the loop; 0 if there
        is no step.
    traces
        The outputs to ask for such a length, if ``n_steps`` is not given.
    """
    body, lengths = _traced_lengths(op.fgraph, op.n_states, op.is_while)
    zero = body.index.type.constant_type(body.index.type, np.zeros((), "int64"))
    first = dict(zip(body.inputs, [zero, *outer], strict=True))
    found: list[Shape | None] = []
    for position, dims in enumerate(lengths):
        if dims is None:
            found.append(None)
            continue
        shape: list[Symbolic] = []
        for dim, (length, is_fixed) in enumerate(dims):
            if not is_fixed and n_steps is None:
                shape.append(Shape_i(dim + 1)(traces[position]))
                continue
            computed: Symbolic = clone_replace(length, first)
            if not is_fixed:
                nothing = pt.constant(0, dtype=computed.dtype)
                computed = ifelse(pt.gt(n_steps, 0), computed, nothing)
            shape.append(computed)
        found.append(tuple(shape))
    return found


@remembered
def _traced_lengths(
    graph: FrozenFunctionGraph, n_states: int, is_while: bool
) -> tuple[Body, list[list[tuple[Symbolic, bool]] | None]]:
    """Return a copy of the body, and each length of each traced value with whether it is fixed.

    Nested loops ask for the lengths of their inner loops more than once.
    """
    body = Body.of(graph, n_states, is_while)
    kept = kept_lengths(graph, n_states)
    feature = ShapeFeature()
    found: list[list[tuple[Symbolic, bool]] | None] = []
    for value in body.traced:
        if not isinstance(value, TensorVariable):
            found.append([] if isinstance(value.type, ScalarType) else None)
            continue
        dims = []
        for length in feature.shape_tuple(value):
            if not _is_fixed(length, body, kept):
                # As one of inputs, where a graph takes shapes of what is computed.
                length = rewrite_graph(length, include=("canonicalize", "ShapeOpt"), clone=True)
            dims.append((length, _is_fixed(length, body, kept)))
        found.append(dims)
    return body, found


def _is_fixed(length: Variable, body: Body, kept: Sequence[Sequence[bool]]) -> bool:
    """Whether a length is decided by constants, and lengths of states that no step changes."""

    def decided_by(variable: Variable) -> Any:
        node = variable.owner
        if node is None:
            return ()
        if isinstance(node.op, Shape_i) and (state := node.inputs[0]) in body.states:
            return () if kept[body.states.index(state)][node.op.i] else (state,)
        return node.inputs

    changing = {body.index, *body.states}
    return changing.isdisjoint(walk([length], decided_by))
