"""Elementwise arithmetic of arrays, and sums, products and extrema along their axes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from llvmlite import ir
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch._llvmlite_self_ref import ensure_self_ref_metadata_support
from pytensor.scalar import basic as scalars
from pytensor.scalar.basic import identity as identity_op
from pytensor.tensor.elemwise import CAReduce, Elemwise

from scanopt_cli.codegen.graphs import GraphWriter, write_node
from scanopt_cli.codegen.scalars import Rule, rule_of
from scanopt_cli.codegen.values import Array, Gathered, Length, Number, Other, Value, is_real
from scanopt_cli.loop.llvm_values import replace_numbers
from scanopt_cli.loop.numba_math import OF_VALUES
from scanopt_cli.loop.vector_math import WholeArrayFunction

ensure_self_ref_metadata_support()


@write_node.register(Elemwise)
def _elementwise(
    op: Elemwise, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value | None] | None:
    scalar_op, whole = op.scalar_op, None
    if isinstance(scalar_op, WholeArrayFunction):
        whole, scalar_op = OF_VALUES[scalar_op.function], scalar_op.argument() or identity_op
    rule = rule_of(scalar_op, op.make_scalar_node(*node.inputs))
    if rule is None or any(isinstance(value, Other) for value in inputs):
        return None
    shape = broadcast_shape(writer, node, inputs)
    if all(isinstance(value, Number) for value in inputs) and whole is None:
        return rule(writer, inputs)  # type: ignore[arg-type]
    results = [_target(writer, op, node, i, shape, inputs) for i in range(len(node.outputs))]
    _compute(writer, rule, shape, inputs, results)
    if whole is not None:
        (result,) = results
        size = writer.code(writer.product(result.array.shape))
        replace_numbers(writer.builder, whole, result.array.data, size)
    made: list[Value | None] = []
    for output, result in zip(node.outputs, results, strict=True):
        reader = writer.order.only_reader(output)
        if result.reduction is None or reader is None:
            made.append(result.array)
        else:
            writer.order.done[reader] = [result.value(writer)]
            made.append(None)
    return made


@dataclass(eq=False, slots=True)
class _Result:
    """Where the entries of an elementwise result go: into an array, or into totals.

    Attributes
    ----------
    array
        The array of entries, or of totals along some axes.
    is_apart
        Whether no array that is read shares its memory.
    reduction
        What adds the entries up.
    place
        Where the total of all entries is.
    kept
        The axes that the array has.
    """

    array: Any
    is_apart: bool
    reduction: Any = None
    place: Any = None
    kept: Sequence[int] = ()
    total: Number | None = None
    dtype: Any = None

    def value(self, writer: GraphWriter) -> Value:
        """Return what stands for the array, or for the total."""
        if self.total is None:
            array: Array = self.array
            return array
        found = Number(writer.builder.load(self.place), self.total.dtype)
        return writer.cast(found, self.dtype)


def _target(
    writer: GraphWriter,
    op: Elemwise,
    node: Apply,
    i: int,
    shape: Sequence[Length],
    inputs: Sequence[Value],
) -> _Result:
    output = node.outputs[i]
    is_whole = isinstance(op.scalar_op, WholeArrayFunction)
    reader = writer.order.only_reader(output)
    if reader is not None and isinstance(reader.op, CAReduce) and not is_whole:
        found = _total(writer, reader, shape)
        if found is not None:
            return found
    place = op.inplace_pattern.get(i)
    target = None if place is None else inputs[place]
    if (
        isinstance(target, Array)
        and target.dtype == np.dtype(output.type.dtype)
        and (target.is_contiguous or not is_whole)
    ):
        return _Result(target, is_apart=False)
    return _Result(writer.allocate(output.type.dtype, shape), is_apart=True)


def _total(writer: GraphWriter, node: Apply, shape: Sequence[Length]) -> _Result | None:
    """Return where a reduction of entries of a shape adds them up, if it has a rule."""
    op: Any = node.op
    (output,) = node.outputs
    dtype = np.dtype(getattr(op, "acc_dtype", None) or output.type.dtype)
    is_known = type(op.scalar_op) in {*_COMBINED, scalars.Maximum, scalars.Minimum}
    if not is_known or not is_real(dtype) or not is_real(output.type.dtype):
        return None
    ndim = len(shape)
    axes = range(ndim) if op.axis is None else {axis % ndim for axis in op.axis}
    kept = [axis for axis in range(ndim) if axis not in axes]
    start = writer.number(identity(op.scalar_op.identity, dtype), dtype)
    if not kept:
        place = writer.variable(start)
        return _Result(None, True, op.scalar_op, place, (), start, output.type.dtype)
    if dtype != np.dtype(output.type.dtype):
        return None
    array = writer.allocate(dtype, [shape[axis] for axis in kept])
    scope = Scope(writer)
    over_entries(writer, array.shape, lambda at: scope.write(start, array, at))
    return _Result(array, True, op.scalar_op, None, kept)


def _compute(
    writer: GraphWriter,
    rule: Rule,
    shape: Sequence[Length],
    inputs: Sequence[Value],
    results: Sequence[_Result],
) -> None:
    """Write the loops over the entries."""
    arrays = [result.array for result in results if result.array is not None]
    axes: Sequence[Length] = shape
    read: Sequence[Value] = inputs
    written = [result.array for result in results]
    if not any(result.kept for result in results):
        axes, values = flattened(writer, shape, [*inputs, *arrays])
        read, stored = values[: len(inputs)], iter(values[len(inputs) :])
        written = [None if array is None else next(stored) for array in written]
    scope = Scope(writer)

    def compute(indices: Sequence[Length]) -> None:
        numbers = [scope.read(value, indices) for value in read]
        for number, array, result in zip(rule(writer, numbers), written, results, strict=True):
            if result.reduction is None:
                scope.write(number, array, indices, is_apart=result.is_apart)
                continue
            at = [indices[axis] for axis in result.kept]
            if result.total is None:
                made = combined(writer, result.reduction, scope.total(array, at), number)
                scope.write(made, array, at)
            else:
                total = Number(writer.builder.load(result.place), result.total.dtype)
                made = combined(writer, result.reduction, total, number)
                writer.builder.store(made.code, result.place)

    over_entries(writer, axes, compute)


class Scope:
    """Reads and writes entries; tells LLVM that what is read is not what is written."""

    def __init__(self, writer: GraphWriter) -> None:
        self.writer = writer
        module = writer.builder.module
        domain = module.add_metadata([], self_ref=True)
        self._scope = module.add_metadata([module.add_metadata([domain], self_ref=True)])

    def read(self, value: Value, indices: Sequence[Length]) -> Number:
        """Return the entry of a value that is broadcast to the axes of ``indices``."""
        if isinstance(value, Number):
            return value
        if isinstance(value, Gathered):
            return self._picked(value, indices)
        assert isinstance(value, Array)
        own = [
            0 if isinstance(n, int) and n == 1 else index
            for n, index in zip(value.shape, indices, strict=True)
        ]
        found = self.writer.builder.load(self.writer.entry(value, own))
        found.set_metadata("noalias", self._scope)
        if value.dtype == np.bool_:
            code = self.writer.builder.icmp_unsigned("!=", found, found.type(0))
            return Number(code, value.dtype)
        return Number(found, value.dtype)

    def _picked(self, value: Gathered, indices: Sequence[Length]) -> Number:
        writer, array = self.writer, value.array
        at: list[Length] = []
        for dimension, length in enumerate(array.shape):
            index = value.picked.get(dimension)
            if index is None:
                axis = dimension if dimension < value.axis else dimension - len(value.picked) + 1
                at.append(indices[axis])
            else:
                picked = self.read(index, [indices[value.axis]])
                at.append(row_at(writer, writer.length(picked), length))
        return self.read(array, at)

    def total(self, array: Array, indices: Sequence[Length]) -> Number:
        """Return an entry of what is written."""
        return self.writer.load(self.writer.entry(array, indices), array.dtype)

    def write(
        self, number: Number, array: Value, indices: Sequence[Length], *, is_apart: bool = True
    ) -> None:
        """Write an entry; ``is_apart`` says that no array that is read shares the memory."""
        assert isinstance(array, Array)
        writer = self.writer
        code = writer.cast(number, array.dtype).code
        if array.dtype == np.bool_:
            code = writer.builder.zext(code, ir.IntType(8))
        stored = writer.builder.store(code, writer.entry(array, indices))
        if is_apart:
            stored.set_metadata("alias.scope", self._scope)


def flattened(
    writer: GraphWriter, shape: Sequence[Length], values: Sequence[Value]
) -> tuple[Sequence[Length], Sequence[Value]]:
    """Return a shape and values with one axis in place of several, if all are contiguous."""
    arrays = [value for value in values if isinstance(value, Array)]
    if (
        len(shape) < 2
        or any(isinstance(value, Gathered) for value in values)
        or not all(
            value.is_contiguous and all(map(_is_same, value.shape, shape)) for value in arrays
        )
    ):
        return shape, values
    size = writer.product(shape)
    return [size], [
        replace(value, shape=(size,), strides=(value.dtype.itemsize,))
        if isinstance(value, Array)
        else value
        for value in values
    ]


def over_entries(
    writer: GraphWriter, shape: Sequence[Length], write: Callable[[Sequence[Length]], None]
) -> None:
    """Write a loop for each axis, the last one innermost."""

    def nest(indices: list[Length]) -> None:
        if len(indices) == len(shape):
            write(indices)
            return
        with writer.loop(shape[len(indices)]) as index:
            nest([*indices, index])

    nest([])


def _is_same(one: Length, other: Length) -> bool:
    return one is other or (isinstance(one, int) and isinstance(other, int) and one == other)


def broadcast_shape(writer: GraphWriter, node: Apply, inputs: Sequence[Value]) -> list[Length]:
    """Return the shape of an elementwise result; raise, where it runs, if lengths differ."""
    shape: list[Length] = []
    for axis in range(node.outputs[0].type.ndim):
        found: Length = 1
        is_first = True
        for i, (variable, value) in enumerate(zip(node.inputs, inputs, strict=True)):
            if not isinstance(value, Array | Gathered) or variable.type.broadcastable[axis]:
                continue
            length = value.shape[axis]
            if is_first:
                found, is_first = length, False
                continue
            writer.fail_if(
                writer.differs(length, found),
                ValueError,
                f"Vectorized input {i} has an incompatible shape in axis {axis}.",
            )
            if isinstance(length, int):
                found = length
        shape.append(found)
    return shape


def row_at(writer: GraphWriter, index: Length, length: Length) -> Length:
    """Return the row at an index, which counts from the end if it is negative; check it."""
    row = writer.chosen(writer.is_less(index, 0), writer.add(index, length), index)
    outside = writer.builder.or_(writer.is_less(row, 0), writer.is_at_least(row, length))
    writer.fail_if(outside, IndexError, "index out of bounds")
    return row


_COMBINED: dict[type, Any] = {
    scalars.Add: operator.add,
    scalars.Mul: operator.mul,
    scalars.AND: operator.and_,
    scalars.OR: operator.or_,
    scalars.XOR: operator.xor,
}


def combined(writer: GraphWriter, op: Any, total: Number, number: Number) -> Number:
    """Return what a reduction by ``op`` makes of a total and the next number."""
    function = _COMBINED.get(type(op))
    if function is not None:
        return writer.cast(writer.called(function, total, number), total.dtype)
    compare = operator.lt if isinstance(op, scalars.Maximum) else operator.gt
    is_better = writer.called(compare, total, number).code
    is_nan = writer.called(operator.ne, number, number).code
    taken = writer.builder.or_(is_nan, is_better)
    new = writer.cast(number, total.dtype)
    return Number(writer.builder.select(taken, new.code, total.code), total.dtype)


@write_node.register(CAReduce)
def _reduction(
    op: CAReduce,  # noqa: ARG001
    node: Apply,
    writer: GraphWriter,
    inputs: Sequence[Value],
) -> Sequence[Value] | None:
    (value,) = inputs
    if not isinstance(value, Array):
        return None
    result = _total(writer, node, value.shape)
    if result is None:
        return None
    _compute(writer, lambda _writer, numbers: numbers, value.shape, inputs, [result])
    return [result.value(writer)]


def identity(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the number that a reduction starts from, in the dtype of its total."""
    if dtype.kind in "uib" and not np.isfinite(value):
        if dtype.kind == "b":
            return bool(np.isposinf(value))
        limits = np.iinfo(dtype)
        return limits.max if np.isposinf(value) else limits.min
    return np.asarray(value).astype(dtype)[()]
