"""Elementwise arithmetic of arrays, and sums, products and extrema along their axes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.scalar import basic as scalars
from pytensor.scalar.basic import identity as identity_op
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Argmax

from scanopt_cli.loop.codegen.entries import Entries
from scanopt_cli.loop.codegen.graphs import GraphWriter, write_node
from scanopt_cli.loop.codegen.lengths import is_same
from scanopt_cli.loop.codegen.scalars import Rule, rule_of
from scanopt_cli.loop.codegen.values import Array, Gathered, Length, Number, Other, Value, is_real
from scanopt_cli.loop.llvm_math import OF_VALUES
from scanopt_cli.loop.llvm_values import replace_numbers
from scanopt_cli.loop.vector_math import WholeArrayFunction


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
    reduction
        What adds the entries up.
    place
        Where the total of all entries is; or, meanwhile, of those along the last axis, if the array
        does not have that.
    kept
        The axes that the array has.
    total
        What the totals begin with.
    """

    array: Any
    reduction: Any = None
    place: Any = None
    kept: Sequence[int] = ()
    total: Number | None = None
    dtype: Any = None

    def value(self, writer: GraphWriter) -> Value:
        """Return what stands for the array, or for the total."""
        if self.array is not None:
            array: Array = self.array
            return array
        return writer.cast(self.total_so_far(writer), self.dtype)

    def total_so_far(self, writer: GraphWriter) -> Number:
        """Return the total that is at the place."""
        assert self.total is not None
        return Number(writer.builder.load(self.place), self.total.dtype)

    def at(self, indices: Sequence[Length]) -> list[Length]:
        """Return the indices of the axes that the array has."""
        return [indices[axis] for axis in self.kept]


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
    target = writer.place_of(output, shape) if place is None else inputs[place]
    if (
        isinstance(target, Array)
        and target.dtype == np.dtype(output.type.dtype)
        and (target.is_contiguous or not is_whole)
    ):
        return _Result(target)
    return _Result(writer.allocate(output.type.dtype, shape))


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
        return _Result(None, op.scalar_op, place, (), start, output.type.dtype)
    if dtype != np.dtype(output.type.dtype):
        return None
    array = writer.allocate(dtype, [shape[axis] for axis in kept])
    entries = Entries(writer, array)
    entries.over(array.shape, lambda at: entries.write(start, array, at))
    # What is added up along the last axis is in a register meanwhile.
    place = None if ndim - 1 in kept else writer.variable(start)
    return _Result(array, op.scalar_op, place, kept, start)


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
    entries = Entries(writer, *(array for array in written if array is not None))
    by_rows = [result for result in results if result.kept and result.place is not None]

    def compute(indices: Sequence[Length]) -> None:
        numbers = [entries.read(value, indices) for value in read]
        for number, array, result in zip(rule(writer, numbers), written, results, strict=True):
            if result.reduction is None:
                entries.write(number, array, indices)
            elif result.place is None:
                at = result.at(indices)
                made = combined(writer, result.reduction, entries.read(array, at), number)
                entries.write(made, array, at)
            else:
                made = combined(writer, result.reduction, result.total_so_far(writer), number)
                writer.builder.store(made.code, result.place)

    def compute_row(outer: Sequence[Length]) -> None:
        for result in by_rows:
            total = entries.read(result.array, result.at(outer))
            writer.builder.store(total.code, result.place)
        entries.over(axes[-1:], lambda inner: compute([*outer, *inner]))
        for result in by_rows:
            entries.write(result.total_so_far(writer), result.array, result.at(outer))

    if by_rows:
        writer.over_entries(axes[:-1], compute_row)
    else:
        entries.over(axes, compute)


def flattened(
    writer: GraphWriter, shape: Sequence[Length], values: Sequence[Value]
) -> tuple[Sequence[Length], Sequence[Value]]:
    """Return a shape and values with one axis in place of several, if all are contiguous."""
    arrays = [value for value in values if isinstance(value, Array)]
    if (
        len(shape) < 2
        or any(isinstance(value, Gathered) for value in values)
        or not all(
            value.is_contiguous and all(map(is_same, value.shape, shape)) for value in arrays
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
    op: CAReduce, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    (value,) = inputs
    if not isinstance(value, Array):
        return None
    result = _total(writer, node, value.shape)
    if result is None:
        return None
    _compute(writer, lambda _writer, numbers: numbers, value.shape, inputs, [result])
    return [result.value(writer)]


@write_node.register(Argmax)
def _argmax(
    op: Argmax, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    """Write where the largest entry is, or the first NaN, in the order of the axes."""
    (value,) = inputs
    if isinstance(value, Number):
        return [writer.number(0, np.int64)]
    if not isinstance(value, Array):
        return None
    axes = range(value.ndim) if op.axis is None else [axis % value.ndim for axis in op.axis]
    kept = [axis for axis in range(value.ndim) if axis not in axes]
    shape, reduced = ([value.shape[axis] for axis in some] for some in (kept, axes))
    is_empty = writer.is_zero(writer.product(reduced))
    writer.fail_if(
        writer.both(is_empty, writer.not_(writer.is_zero(writer.product(shape)))),
        ValueError,
        "attempt to get argmax of an empty sequence",
    )
    made = writer.allocate(np.int64, shape) if kept else None
    entries = Entries(writer, *([] if made is None else [made]))
    zero = writer.number(0, np.int64)
    count, best = writer.variable(zero), writer.variable(zero)
    largest = writer.variable(writer.number(0, value.dtype))

    def search(outer: Sequence[Length]) -> None:
        for place in (count, best):
            writer.builder.store(zero.code, place)

        def compare(inner: Sequence[Length]) -> None:
            indices = {**dict(zip(kept, outer, strict=True)), **dict(zip(axes, inner, strict=True))}
            number = entries.read(value, [indices[axis] for axis in range(value.ndim)])
            position = writer.builder.load(count)
            is_first = writer.builder.icmp_signed("==", position, zero.code)
            old = Number(writer.builder.load(largest), value.dtype)
            with writer.builder.if_then(writer.either(is_first, _exceeds(writer, number, old))):
                writer.builder.store(number.code, largest)
                writer.builder.store(position, best)
            writer.builder.store(writer.code(writer.add(position, 1)), count)

        writer.over_entries(reduced, compare)
        if made is not None:
            entries.write(Number(writer.builder.load(best), zero.dtype), made, outer)

    writer.over_entries(shape, search)
    return [Number(writer.builder.load(best), zero.dtype) if made is None else made]


def _exceeds(writer: GraphWriter, number: Number, largest: Number) -> Any:
    """Return whether NumPy takes a number rather than the largest one before: the first NaN is."""
    if number.dtype == np.bool_:
        number, largest = (writer.cast(n, np.uint8) for n in (number, largest))
    exceeds = writer.called(operator.gt, number, largest).code
    if number.dtype.kind != "f":
        return exceeds
    is_nan = writer.called(operator.ne, number, number).code
    was_none = writer.called(operator.eq, largest, largest).code
    return writer.either(exceeds, writer.both(is_nan, was_none))


def identity(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the number that a reduction starts from, in the dtype of its total."""
    if dtype.kind in "uib" and not np.isfinite(value):
        if dtype.kind == "b":
            return bool(np.isposinf(value))
        limits = np.iinfo(dtype)
        return limits.max if np.isposinf(value) else limits.min
    return np.asarray(value).astype(dtype)[()]
