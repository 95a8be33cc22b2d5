"""What a step of a loop computes: operations on numbers, and operations on arrays.

A loop whose step is on numbers alone is compiled to machine code that keeps them in registers. Each
operation on an array is a call, and may allocate memory: a step costs as much as they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import Add, Composite, Mul, Second
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.body_lengths import BodyLengths
from scanopt_cli.analysis.formulas import Formula
from scanopt_cli.ir.dtypes import is_numeric
from scanopt_cli.ir.inner_graphs import core_op, op_name
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.text import few, plural

_FREE = (Shape, Shape_i, SpecifyShape, ScalarFromTensor, TensorFromScalar, DimShuffle)
"""What takes no time: conversions, and what reads the shape of an array."""
_MOVES = (AllocEmpty, Alloc, Join, MakeVector, IncSubtensor, AdvancedIncSubtensor, Second)
"""What moves elements, or makes room for them, and computes none."""
_ONCE = Formula({(): 1})


@dataclass(frozen=True, slots=True)
class ArrayOperation:
    """An operation that reads or makes arrays.

    Attributes
    ----------
    name
        The name of the Op, without its parameters.
    shapes
        The shapes of its results, ``(12,3)``; lengths that are unknown are formulas.
    dtype
        The dtype of the first result.
    allocates
        Whether it takes new memory in each step.
    count
        How many of these there are in a step.
    """

    name: str
    shapes: tuple[str, ...]
    dtype: str
    allocates: bool
    count: int = 1

    def __str__(self) -> str:
        shapes = f" {' '.join(self.shapes)}" if self.shapes else ""
        times = f"{self.count} " if self.count > 1 else ""
        where = " in place" if shapes and not self.allocates else ""
        return f"{times}{self.name}{shapes}{where}"


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one step of a loop computes.

    Attributes
    ----------
    numbers
        How many operations on numbers there are.
    arrays
        The operations on arrays; what merely reads a part of one is left out.
    draws
        How many random numbers are drawn one by one.
    inner_loops
        The names of the loops that run in each step.
    operations
        How many results of arithmetic a step computes, without those of loops inside: a formula in
        the lengths of its arrays. A sum counts the elements that it reads, and a matrix product its
        multiplications.
    """

    numbers: int
    arrays: tuple[ArrayOperation, ...]
    inner_loops: tuple[str, ...]
    operations: str
    draws: int = 0

    @property
    def is_on_numbers(self) -> bool:
        """Whether a step computes with numbers, and with nothing else."""
        return bool(self.numbers) and not (self.arrays or self.draws or self.inner_loops)

    def text(self, most: int | None = None) -> str:
        """Return what is computed; of operations on arrays the ``most`` frequent ones, or all."""
        parts = [f"{plural(self.numbers, 'node')} on numbers"] if self.numbers else []
        if self.arrays:
            frequent = sorted(self.arrays, key=lambda operation: -operation.count)
            parts.append(f"arrays: {few([*map(str, frequent)], most or len(frequent))}")
        if self.draws:
            parts.append(plural(self.draws, "draw"))
        if self.inner_loops:
            counts = Counter(self.inner_loops).items()
            names = (f"{count} {name}" if count > 1 else name for name, count in counts)
            parts.append(f"loops: {', '.join(names)}")
        return "; ".join(parts) or "nothing"

    def __str__(self) -> str:
        return self.text()


def step_cost(
    view: SlotView,
    lengths: BodyLengths | None = None,
    nodes: Iterable[Apply] | None = None,
) -> StepCost:
    """Return what a step of a loop computes, or some ``nodes`` of it.

    ``lengths`` are those of the step, if they are at hand.
    """
    lengths = lengths or BodyLengths(view.node)
    numbers = draws = 0
    operations: list[Formula] = []
    arrays: Counter[ArrayOperation] = Counter()
    loops = []
    for node in view.op.fgraph.toposort() if nodes is None else nodes:
        if is_loop(node):
            loops.append(op_name(node.op))
        elif _is_read_in_place(node.op) or not any(map(is_numeric, node.outputs)):
            continue
        elif all(map(_is_number, (*node.inputs, *node.outputs))):
            numbers += 1
        elif _is_draw(node):
            draws += 1
        else:
            arrays[_operation(node, lengths)] += 1
            operations.append(results_of(node, lengths))
    found = tuple(replace(operation, count=count) for operation, count in arrays.items())
    total = Formula.total((Formula({(): numbers}), *operations))
    return StepCost(numbers, found, tuple(loops), str(total), draws)


class Shapes(Protocol):
    """Tells the shapes of variables."""

    def shape(self, variable: Any) -> list[AffineExpr]:
        """Return the lengths of the axes of ``variable``."""


def computes(op: Op) -> bool:
    """Whether an Op computes, and does not only move elements, or make room for them."""
    return not isinstance(_arithmetic(op), _MOVES)


def _is_read_in_place(op: Op) -> bool:
    """Whether an Op copies nothing: it converts, reads a shape, or takes a part of an array."""
    return isinstance(op, _FREE) or bool(op.view_map)


def _is_number(variable: Variable) -> bool:
    return is_numeric(variable) and variable.type.ndim == 0


def _is_draw(node: Apply) -> bool:
    """Whether a node draws one random number."""
    numbers = filter(is_numeric, node.outputs)
    return isinstance(core_op(node.op), RandomVariable) and all(map(_is_number, numbers))


def _operation(node: Apply, lengths: BodyLengths) -> ArrayOperation:
    arrays = [v for v in node.outputs if isinstance(v.type, TensorType)]
    shapes = tuple(f"({','.join(map(str, lengths.shape(v)))})" for v in arrays if v.type.ndim)
    dtype = str(arrays[0].type.dtype) if arrays else ""
    is_new = bool(shapes) and not node.op.destroy_map
    return ArrayOperation(_name(node.op), shapes, dtype, is_new)


def _arithmetic(op: Op) -> Any:
    """Return what an Op does with numbers or arrays, whatever applies it to several."""
    op = core_op(op)
    return op.scalar_op if isinstance(op, Elemwise) else op


def _name(op: Op) -> str:
    op = _arithmetic(op)
    return str(getattr(op, "name", None) or op).partition("{")[0] or type(op).__name__


def results_of(node: Apply, lengths: Shapes) -> Formula:
    """Return how many results of arithmetic a node computes, one without a body."""
    op = _arithmetic(node.op)
    if isinstance(op, _MOVES) or _is_read_in_place(node.op):
        return Formula()
    if isinstance(op, Dot):
        return _elements(node.outputs[0], lengths).times(lengths.shape(node.inputs[0])[-1:])
    fused = len(op.fgraph.apply_nodes) if isinstance(op, Composite) else 1
    if isinstance(op, Add | Mul):  # a sum of three terms is two additions
        fused = max(len(node.inputs) - 1, 1)
    source = node.inputs[0] if isinstance(op, CAReduce) else node.outputs[0]
    return _elements(source, lengths).scaled(fused)


def _elements(variable: Variable, lengths: Shapes) -> Formula:
    return _ONCE.times(lengths.shape(variable))
