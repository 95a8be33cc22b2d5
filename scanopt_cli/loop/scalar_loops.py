"""Loops over numbers as one scalar function in C, for linkers that compile C.

The virtual machine calls the body of a `Loop` from Python at each step. PyTensor's ScalarLoop runs
in C, and has states and constants that are numbers, and steps that are arithmetic of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import ScalarConstant, ScalarType, get_scalar_type, identity, invert
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.loop.operators import Loop


@node_rewriter([Loop])  # type: ignore[untyped-decorator]
def scalar_loop(_fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Make a ScalarLoop of a loop whose steps are arithmetic of numbers."""
    op = node.op
    if not all(map(has_no_dimensions, op.fgraph.inputs)):
        return None
    body = op.fgraph.unfreeze()
    if any(v.type.numpy_dtype.kind == "c" for v in body.variables if has_no_dimensions(v)):
        return None  # it has no C code
    _simplify().rewrite(body)
    numbers = _as_numbers(body)
    if numbers is None:
        return None
    index, *inputs = (numbers[v] for v in body.inputs)
    outputs = [numbers[v] for v in body.outputs]
    stops: Any = invert(outputs.pop()) if op.is_while else None
    # The index is a state, too. An update may not be a state itself, nor that of two states.
    outputs.append(index + ScalarConstant(get_scalar_type("int64"), 1))
    updates: list[Any] = [new if new.owner is not None else identity(new) for new in outputs]
    if len(set(updates)) < len(updates):
        return None
    states, constants = inputs[: op.n_states], inputs[op.n_states :]
    scalar = ScalarLoop(
        init=[*states, index],
        update=updates,
        constant=constants,
        until=stops,
        name=op.name or "Loop",
    )
    n_steps, initial, given = op.split(node.inputs)
    check = CheckAndRaise(ValueError, "a loop was asked for a negative number of steps")
    n_steps = check(n_steps, pt.ge(n_steps, 0))
    start = pt.constant(0, dtype="int64")
    made: Any = Elemwise(scalar, name=str(op))(n_steps, *initial, start, *given, return_list=True)
    return list(made[: op.n_states])


@cache
def _simplify() -> Any:
    """Return the rewrites of a body that do not fuse it, nor make it work in place."""
    include = ["canonicalize", "stabilize", "specialize"]
    return optdb.query(RewriteDatabaseQuery(include=include, exclude=["fusion", "inplace"]))


def has_no_dimensions(variable: Variable) -> bool:
    """Whether a variable is an array of no dimensions."""
    return isinstance(variable.type, DenseTensorType) and variable.type.ndim == 0


def _as_numbers(body: FunctionGraph) -> dict[Variable, Any] | None:
    """Return a scalar for each variable of a body, ``None`` if it is not all arithmetic."""
    numbers: dict[Variable, Any] = {v: get_scalar_type(v.type.dtype)() for v in body.inputs}

    def number(variable: Variable) -> Any:
        if isinstance(variable, Constant) and variable not in numbers:
            if not isinstance(variable.type, DenseTensorType | ScalarType):
                return None
            kind = get_scalar_type(variable.type.dtype)
            numbers[variable] = kind.constant_type(kind, kind.filter(variable.data.item()))
        return numbers.get(variable)

    for node in body.toposort():
        parts: Sequence[Any] = [number(v) for v in node.inputs]
        if any(part is None for part in parts):
            return None
        if isinstance(node.op, ScalarFromTensor | TensorFromScalar):
            numbers[node.outputs[0]] = parts[0]
        elif isinstance(node.op, Elemwise) and not node.outputs[0].type.ndim:
            made = node.op.scalar_op.make_node(*parts).outputs
            numbers.update(zip(node.outputs, made, strict=True))
        else:
            return None
    for output in body.outputs:
        number(output)
    return numbers
