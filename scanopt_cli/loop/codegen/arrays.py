"""Shapes of arrays, arrays that are made of others, and numbers in and out of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from llvmlite import ir
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ARange,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise
from pytensor.tensor.rewriting.scalarize import (
    ScalarCAReduce,
    ScalarizedElemwise,
    ScalarizedJoin,
    ScalarSubtensor,
)
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.type_other import NoneTypeT

from scanopt_cli.loop.codegen.entries import Entries
from scanopt_cli.loop.codegen.graphs import GraphWriter, is_number_like, write_node
from scanopt_cli.loop.codegen.values import Array, Length, Number, Other, Value, is_real

_FLOAT = np.dtype(np.float64)
_WRONG_SIZE = "cannot reshape array into the shape that is asked for"
_TOO_MANY = "Maximum allowed size exceeded"
_MISMATCH = "all the input array dimensions except for the concatenation axis must match exactly"


@write_node.register(ScalarFromTensor)
@write_node.register(TensorFromScalar)
def _same_number(
    op: Any, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    return inputs if isinstance(inputs[0], Number) else None


@write_node.register(DeepCopyOp)
def _copy(
    op: Any, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    (value,) = inputs
    if isinstance(value, Other):
        return None
    return [writer.copied(value) if isinstance(value, Array) else value]


@write_node.register(ViewOp)
def _view(
    op: Any, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    return None if isinstance(inputs[0], Other) else inputs


@write_node.register(Shape_i)
def _length(
    op: Shape_i, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    (value,) = inputs
    if not isinstance(value, Array | Number):
        return None
    length = value.shape[op.i] if isinstance(value, Array) else 1
    return [writer.count(length)]


@write_node.register(Shape)
def _shape(
    op: Shape, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    (value,) = inputs
    if not isinstance(value, Array):
        return None
    return [vector(writer, [writer.count(n) for n in value.shape], np.dtype(np.int64))]


@write_node.register(SpecifyShape)
def _specified(
    op: SpecifyShape, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    value, *lengths = inputs
    if isinstance(value, Other):
        return None
    own = value.shape if isinstance(value, Array) else (1,) * node.outputs[0].type.ndim
    shape = list(own)
    for i, (variable, length) in enumerate(zip(node.inputs[1:], lengths, strict=True)):
        if isinstance(variable.type, NoneTypeT):
            continue
        assert isinstance(length, Number)
        wanted = writer.length(length)
        writer.fail_if(
            writer.differs(own[i], wanted),
            AssertionError,
            f"SpecifyShape: dim {i} of input has another length than is expected",
        )
        shape[i] = wanted if isinstance(wanted, int) else shape[i]
    return [replace(value, shape=tuple(shape)) if isinstance(value, Array) else value]


@write_node.register(CheckAndRaise)
def _checked(
    op: CheckAndRaise, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    value, *conditions = inputs
    if not all(isinstance(condition, Number) for condition in conditions):
        return None
    if isinstance(value, Other):
        return None
    for condition in conditions:
        assert isinstance(condition, Number)
        holds = writer.cast(condition, np.bool_).code
        writer.fail_if(writer.not_(holds), op.exc_type, op.msg)
    return [value]


@write_node.register(DimShuffle)
def _dimshuffle(
    op: DimShuffle, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    (value,) = inputs
    if not isinstance(value, Array):
        return inputs if isinstance(value, Number) else None
    for axis in op.drop:
        writer.fail_if(
            writer.differs(value.shape[axis], 1),
            ValueError,
            "a dimension that is dropped has more than one entry",
        )
    shape: list[Length] = [1 if axis == "x" else value.shape[axis] for axis in op.new_order]
    strides: list[Length] = [0 if axis == "x" else value.strides[axis] for axis in op.new_order]
    order = [axis for axis in op.new_order if axis != "x"]
    follow = value.is_contiguous and order == sorted(order)
    if follow:
        strides = list(writer.row_major(value.dtype, shape))
    made = replace(value, shape=tuple(shape), strides=tuple(strides), is_contiguous=follow)
    return [made]


@write_node.register(Reshape)
def _reshape(
    op: Reshape, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    value, lengths = inputs
    (output,) = node.outputs
    if isinstance(value, Number) and is_number_like(output):
        return [value]
    first, *static = output.type.shape or (1,)
    rest = writer.product(static) if None not in static else 0
    if not isinstance(value, Array) or not isinstance(rest, int):
        return None
    if not rest or (op.ndim > 1 and not isinstance(lengths, Array)):
        return None  # two lengths are not known
    asked: list[Length] = []
    if isinstance(lengths, Number):
        asked = [writer.length(lengths)] * op.ndim
    elif isinstance(lengths, Array):
        for i in range(op.ndim):
            entry = writer.load(writer.entry(lengths, [i]), lengths.dtype)
            asked.append(writer.length(entry))
    size = writer.product(value.shape)
    found: Length = writer.quotient(size, rest) if first is None else first
    shape = [found, *static][: op.ndim]
    fits = writer.differs(writer.multiply(found, rest), size)
    writer.fail_if(fits, ValueError, _WRONG_SIZE)
    for length, known in zip(asked, shape, strict=True):
        is_other = writer.both(writer.differs(length, known), writer.differs(length, -1))
        writer.fail_if(is_other, ValueError, _WRONG_SIZE)
    strides = writer.row_major(value.dtype, shape)
    if not value.is_contiguous:
        value = writer.copied(value)
    return [replace(value, shape=tuple(shape), strides=strides)]


@write_node.register(AllocEmpty)
def _alloc_empty(
    op: AllocEmpty, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    lengths = _lengths(writer, inputs)
    if lengths is None or not is_real(op.dtype):
        return None
    if is_number_like(node.outputs[0]):
        writer.checked(lengths, (1,) * len(lengths))
        return [writer.number(0, op.dtype)]
    return [writer.allocate(op.dtype, lengths)]


@write_node.register(Alloc)
def _alloc(
    op: Alloc, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    value, *rest = inputs
    lengths = _lengths(writer, rest)
    (output,) = node.outputs
    if lengths is None or not isinstance(value, Array | Number):
        return None
    if is_number_like(output):
        writer.checked(lengths, (1,) * len(lengths))
        return [value]
    offset = output.type.ndim - node.inputs[0].type.ndim
    shape = writer.checked(lengths, output.type.shape)
    if isinstance(value, Array):
        for axis, static in enumerate(node.inputs[0].type.shape):
            if static == 1:
                continue
            writer.fail_if(
                writer.differs(value.shape[axis], shape[offset + axis]),
                ValueError,
                "could not broadcast input array into the shape requested by Alloc",
            )
    made = writer.allocate(value.dtype, shape)
    entries = Entries(writer, made)
    entries.over(shape, lambda at: entries.write(entries.read(value, at[offset:]), made, at))
    return [made]


def _lengths(writer: GraphWriter, values: Sequence[Value]) -> list[Length] | None:
    """Return integers as lengths."""
    numbers = [v for v in values if isinstance(v, Number) and v.dtype.kind in "iu"]
    return [writer.length(v) for v in numbers] if len(numbers) == len(values) else None


@write_node.register(MakeVector)
def _make_vector(
    op: MakeVector, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    numbers = [v for v in inputs if isinstance(v, Number)]
    if len(numbers) < len(inputs) or not is_real(op.dtype):
        return None
    if is_number_like(node.outputs[0]):
        return [writer.cast(numbers[0], op.dtype)]
    return [vector(writer, numbers, np.dtype(op.dtype))]


def vector(writer: GraphWriter, numbers: Sequence[Number], dtype: np.dtype[Any]) -> Array:
    """Return a new vector of numbers."""
    made = writer.allocate(dtype, (len(numbers),))
    for i, number in enumerate(numbers):
        writer.store(number, writer.entry(made, [i]), dtype)
    return made


@write_node.register(Join)
def _join(
    op: Join, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    (output,) = node.outputs
    if not all(isinstance(v, Array | Number) for v in inputs) or not is_real(output.type.dtype):
        return None
    axis, ndim = op.axis % output.type.ndim, output.type.ndim
    ones: tuple[Length, ...] = (1,) * ndim
    shapes = [v.shape if isinstance(v, Array) else ones for v in inputs]
    shape = list(shapes[0])
    for other in shapes[1:]:
        shape[axis] = writer.add(shape[axis], other[axis])
        for i in range(ndim):
            if i != axis:
                writer.fail_if(writer.differs(other[i], shape[i]), ValueError, _MISMATCH)
    made = writer.allocate(output.type.dtype, shape)
    entries = Entries(writer, made)
    first: Length = 0
    for value, own in zip(inputs, shapes, strict=True):

        def put(at: Sequence[Length], value: Value = value, first: Length = first) -> None:
            place = [*at[:axis], writer.add(at[axis], first), *at[axis + 1 :]]
            entries.write(entries.read(value, at), made, place)

        entries.over(own, put)
        first = writer.add(first, own[axis])
    return [made]


@write_node.register(ARange)
def _arange(
    op: ARange, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    """Write integers that are a step apart; how many there are, NumPy computes by floats."""
    given = _lengths(writer, inputs)
    if given is None or not all(np.can_cast(v.type.dtype, np.int64) for v in node.inputs):
        return None
    start, stop, step = given
    is_zero = writer.is_zero(step)
    writer.fail_if(is_zero, ValueError, _TOO_MANY)
    distance, is_too_far = writer.distance(start, stop)
    if isinstance(step, int) and step == 1:
        writer.fail_if(writer.both(is_too_far, writer.is_less(start, stop)), ValueError, _TOO_MANY)
        count = writer.larger(distance, 0)
        count = writer.chosen(is_too_far, 0, count)
    else:
        first, last, steps, whole = (
            writer.cast(writer.count(n), np.float64).code for n in (start, stop, step, distance)
        )
        if not isinstance(is_too_far, ir.Constant):
            between = writer.builder.fsub(last, first)
            whole = writer.builder.select(is_too_far, between, whole)
        rounded = writer.called(np.ceil, Number(writer.builder.fdiv(whole, steps), _FLOAT))
        count = writer.larger(writer.length(rounded), 0)
    made = writer.allocate(op.dtype, writer.checked([count], node.outputs[0].type.shape))
    entries = Entries(writer, made)

    def put(at: Sequence[Length]) -> None:
        number = writer.add(start, writer.multiply(at[0], step))
        entries.write(writer.count(number), made, at)

    entries.over(made.shape, put)
    return [made]


@write_node.register(Split)
def _split(
    op: Split, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    value, sizes = inputs
    if not isinstance(value, Array) or not isinstance(sizes, Array | Number) or not op.len_splits:
        return None
    counts = _counts(writer, node.inputs[1], sizes, op.len_splits)
    is_negative = writer.either(*(writer.is_less(n, 0) for n in counts))
    writer.fail_if(is_negative, ValueError, "Split sizes cannot be negative")
    ends: list[Length] = [0]
    for n in counts:
        ends.append(writer.add(ends[-1], n))
    axis, shape = op.axis, value.shape
    is_wrong = writer.differs(ends[-1], shape[axis])
    writer.fail_if(is_wrong, ValueError, "Split sizes sum to another length than the axis has")
    # Entries follow each other still if there is one of all that is before the axis.
    follow = value.is_contiguous and all(isinstance(n, int) and n == 1 for n in shape[:axis])
    return [
        replace(
            value,
            data=writer.entry(value, [start if i == axis else 0 for i in range(value.ndim)]),
            shape=(*shape[:axis], n, *shape[axis + 1 :]),
            is_contiguous=follow,
        )
        for start, n in zip(ends, counts, strict=False)
    ]


def _counts(writer: GraphWriter, variable: Any, sizes: Array | Number, n: int) -> list[Length]:
    """Return how many entries parts have, after a check of the number of parts."""
    wrong = "Length of splits is not equal to n_splits"
    length = sizes.shape[0] if isinstance(sizes, Array) else 1
    writer.fail_if(writer.differs(length, n), ValueError, wrong)
    if isinstance(variable, Constant) and len(variable.data) == n:
        return [int(size) for size in variable.data]
    if isinstance(sizes, Number):
        return [writer.length(sizes)] * n
    places = [writer.entry(sizes, [i]) for i in range(n)]
    return [writer.length(writer.load(place, sizes.dtype)) for place in places]


@write_node.register(OpFromGraph)
def _of_graph(
    op: OpFromGraph, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    dispatch = numba_funcify_and_cache_key.dispatch
    # PyTensor has other code for some.
    is_any = dispatch(type(op)) is dispatch(OpFromGraph)
    return writer.inner(op.fgraph, inputs) if is_any else None


@write_node.register(FusedElemwise)
@write_node.register(ScalarCAReduce)
@write_node.register(ScalarSubtensor)
@write_node.register(ScalarizedElemwise)
@write_node.register(ScalarizedJoin)
def _inner_graph(
    op: Any, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    return writer.inner(op.fgraph, inputs)
