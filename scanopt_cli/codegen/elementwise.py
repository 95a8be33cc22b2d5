"""Elementwise arithmetic of arrays, and sums, products and extrema along their axes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from llvmlite import ir
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch._llvmlite_self_ref import ensure_self_ref_metadata_support
from pytensor.scalar import basic as scalars
from pytensor.tensor.elemwise import CAReduce, Elemwise

from scanopt_cli.codegen.graphs import GraphWriter, is_number_like, write_node
from scanopt_cli.codegen.scalars import rule_of
from scanopt_cli.codegen.values import Array, Length, Number, Other, Value, is_real

ensure_self_ref_metadata_support()


@write_node.register(Elemwise)
def _elementwise(
    op: Elemwise, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    rule = rule_of(op.scalar_op, op.make_scalar_node(*node.inputs))
    if rule is None or any(isinstance(value, Other) for value in inputs):
        return None
    if all(isinstance(value, Number) for value in inputs):
        return rule(writer, inputs)  # type: ignore[arg-type]
    shape = broadcast_shape(writer, node, inputs)
    results = []
    for i, output in enumerate(node.outputs):
        place = op.inplace_pattern.get(i)
        target = None if place is None else inputs[place]
        if isinstance(target, Array) and target.dtype == np.dtype(output.type.dtype):
            results.append(target)
        else:
            results.append(writer.allocate(output.type.dtype, shape))
    axes, values = flattened(writer, shape, [*inputs, *results])
    read, written = values[: len(inputs)], values[len(inputs) :]
    scope = Scope(writer)
    is_new = [not any(result is value for value in inputs) for result in results]

    def compute(indices: Sequence[Length]) -> None:
        numbers = [scope.read(value, indices) for value in read]
        made = rule(writer, numbers)
        for number, target, is_apart in zip(made, written, is_new, strict=True):
            scope.write(number, target, indices, is_apart=is_apart)

    over_entries(writer, axes, compute)
    return results


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
    if len(shape) < 2 or not all(
        value.is_contiguous and all(map(_is_same, value.shape, shape)) for value in arrays
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
            if not isinstance(value, Array) or variable.type.broadcastable[axis]:
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
    (output,) = node.outputs
    total_dtype = np.dtype(getattr(op, "acc_dtype", None) or output.type.dtype)
    is_known = type(op.scalar_op) in {*_COMBINED, scalars.Maximum, scalars.Minimum}
    if not is_known or not is_real(total_dtype) or isinstance(value, Other):
        return None
    if isinstance(value, Number) or not is_real(output.type.dtype):
        return None
    ndim = value.ndim
    axes = range(ndim) if op.axis is None else sorted(axis % ndim for axis in op.axis)
    kept = [axis for axis in range(ndim) if axis not in axes]
    start = writer.number(identity(op.scalar_op.identity, total_dtype), total_dtype)
    if not kept or is_number_like(output):
        return [_whole(writer, op.scalar_op, value, start, output.type.dtype)]
    if total_dtype != np.dtype(output.type.dtype):
        return None
    return [_along(writer, op.scalar_op, value, start, kept)]


def identity(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the number that a reduction starts from, in the dtype of its total."""
    if dtype.kind in "uib" and not np.isfinite(value):
        if dtype.kind == "b":
            return bool(np.isposinf(value))
        limits = np.iinfo(dtype)
        return limits.max if np.isposinf(value) else limits.min
    return np.asarray(value).astype(dtype)[()]


def _whole(writer: GraphWriter, op: Any, value: Array, start: Number, dtype: Any) -> Number:
    """Write a reduction of all entries, whose total is in a register."""
    place = writer.variable(start)
    scope = Scope(writer)
    axes, (entries,) = flattened(writer, value.shape, [value])

    def add(indices: Sequence[Length]) -> None:
        total = Number(writer.builder.load(place), start.dtype)
        made = combined(writer, op, total, scope.read(entries, indices))
        writer.builder.store(made.code, place)

    over_entries(writer, axes, add)
    return writer.cast(Number(writer.builder.load(place), start.dtype), dtype)


def _along(writer: GraphWriter, op: Any, value: Array, start: Number, kept: Sequence[int]) -> Array:
    """Write a reduction along some axes, whose totals are in the result."""
    result = writer.allocate(start.dtype, [value.shape[axis] for axis in kept])
    scope = Scope(writer)
    over_entries(writer, result.shape, lambda at: scope.write(start, result, at))

    def add(indices: Sequence[Length]) -> None:
        at = [indices[axis] for axis in kept]
        made = combined(writer, op, scope.total(result, at), scope.read(value, indices))
        scope.write(made, result, at)

    over_entries(writer, value.shape, add)
    return result
