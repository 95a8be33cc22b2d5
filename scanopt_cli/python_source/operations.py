"""What a person would write for a node: `candidates` has a case for each kind of Op.

A candidate need not be right. Each is evaluated, and the first whose result has the digest of the
node is taken; behind all of them comes the Op itself, by its constructor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any, Protocol

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.conditional.op import IfElse
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import Cast, ScalarOp
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.type_other import NoneTypeT

from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.python_source import indexing
from scanopt_cli.python_source.code import (
    Binding,
    Candidate,
    Code,
    Operand,
    Part,
    Reference,
    call,
    code,
    listed,
    method,
    paired,
    quoted,
    text,
)
from scanopt_cli.python_source.public_ops import functions_like, public_op
from scanopt_cli.python_source.values import CannotBeWrittenError, ValueCodes, number

_INFIX: dict[type[ScalarOp], tuple[str, Binding]] = {
    ps.Add: ("+", Binding.SUM),
    ps.Sub: ("-", Binding.SUM),
    ps.Mul: ("*", Binding.PRODUCT),
    ps.TrueDiv: ("/", Binding.PRODUCT),
    ps.IntDiv: ("//", Binding.PRODUCT),
    ps.Mod: ("%", Binding.PRODUCT),
    ps.AND: ("&", Binding.AND),
    ps.OR: ("|", Binding.OR),
    ps.XOR: ("^", Binding.XOR),
    ps.LT: ("<", Binding.COMPARISON),
    ps.LE: ("<=", Binding.COMPARISON),
    ps.GT: (">", Binding.COMPARISON),
    ps.GE: (">=", Binding.COMPARISON),
}
_PREFIX: dict[type[ScalarOp], str] = {ps.Neg: "-", ps.Invert: "~"}
_REDUCTIONS = {
    "Sum": "sum",
    "Prod": "prod",
    "Max": "max",
    "Min": "min",
    "All": "all",
    "Any": "any",
}
TENSOR = "pytensor.tensor"


class Writer(Protocol):
    """What knows how values are written, and which variables a candidate may read."""

    values: ValueCodes


@singledispatch
def candidates(op: Any, node: Apply, writer: Writer) -> Iterator[Code | Candidate]:  # noqa: ARG001
    """Yield expressions for ``node``, which applies ``op``, the most readable first."""
    yield from ()


@candidates.register(Elemwise)
@candidates.register(ScalarOp)
def _elementwise(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    scalar = op.scalar_op if isinstance(op, Elemwise) else op
    plain = [_without_new_axes(variable, node) for variable in node.inputs]
    # Which operands get new axes by themselves depends on the others.
    for operands in dict.fromkeys((tuple(plain), tuple(node.inputs))):
        yield from _operation(scalar, operands)
        if isinstance(scalar, Cast) and isinstance(op, Elemwise):
            yield method(operands[0], "astype", quoted(str(scalar.o_type.dtype)))
        found = public_op(op)
        if found is not None:
            yield call(found, operands)


def _operation(scalar: ScalarOp, operands: Sequence[Variable]) -> Iterator[Code]:
    kind = type(scalar)
    if len(operands) == 2 and kind in _INFIX:
        sign, binding = _INFIX[kind]
        first = Binding(binding + 1) if binding is Binding.COMPARISON else binding
        left, right = Operand(operands[0], first), Operand(operands[1], Binding(binding + 1))
        yield code(f"{{}} {sign} {{}}", left, right, binding=binding)
    if len(operands) == 2 and kind is ps.Pow:
        base = Operand(operands[0], Binding.ATOM)
        yield code("{} ** {}", base, Operand(operands[1], Binding.UNARY), binding=Binding.POWER)
    if len(operands) == 1 and kind in _PREFIX:
        operand = Operand(operands[0], Binding.UNARY, bare=False)
        yield code(f"{_PREFIX[kind]}{{}}", operand, binding=Binding.UNARY)


def _without_new_axes(variable: Variable, node: Apply) -> Variable:
    """Return what elementwise operations give new axes in front, to have as many as others."""
    if any(getattr(v.type, "ndim", 0) == 0 for v in node.outputs):
        return variable
    made = variable.owner
    if made is None or not isinstance(made.op, DimShuffle):
        return variable
    (inner,) = made.inputs
    added = made.outputs[0].type.ndim - inner.type.ndim
    order = (*("x",) * added, *range(inner.type.ndim))
    return inner if added and tuple(made.op.new_order) == order else variable


@candidates.register(DimShuffle)
def _dimshuffle(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    (array,) = node.inputs
    order = list(op.new_order)
    yield from _product_of_vectors(array.owner)
    if order == [1, 0]:
        yield code("{}.T", Operand(array, Binding.ATOM, bare=False))
    kept = [axis for axis in order if axis != "x"]
    if kept == list(range(array.type.ndim)):
        index = ["None" if axis == "x" else ":" for axis in order]
        while index and index[-1] == ":":
            index.pop()
        yield code(f"{{}}[{', '.join(index)}]", Operand(array, Binding.ATOM, bare=False))
    elif "x" not in order and kept == sorted(kept):
        dropped = tuple(axis for axis in range(array.type.ndim) if axis not in kept)
        yield method(
            array, "squeeze", number(dropped[0]) if len(dropped) == 1 else text(str(dropped))
        )
    yield method(array, "dimshuffle", *(text(repr(axis)) for axis in order))


@candidates.register(Subtensor)
@candidates.register(AdvancedSubtensor)
def _read(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    yield indexing.read(node)


@candidates.register(IncSubtensor)
@candidates.register(AdvancedIncSubtensor)
def _write(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    yield from indexing.written(node)


@candidates.register(CAReduce)
def _reduction(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:
    name = _REDUCTIONS.get(type(op).__name__)
    (array,) = node.inputs
    if name is None:
        return
    axes = op.axis
    if axes is None or len(axes) == array.type.ndim:
        yield method(array, name)
    axis = text("None") if axes is None else text(str(tuple(axes)))
    if axes is not None and len(axes) == 1:
        axis = number(axes[0])
    yield method(array, name, axis=axis)
    yield method(array, name, axis=axis, dtype=writer.values.of(getattr(op, "dtype", None)))


@candidates.register(Argmax)
def _argmax(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    axes = op.axis
    if axes is None:
        yield method(node.inputs[0], "argmax")
    elif len(axes) == 1:
        yield method(node.inputs[0], "argmax", axis=number(axes[0]))


@candidates.register(Shape)
def _shape(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    yield code("{}.shape", Operand(node.inputs[0], Binding.ATOM, bare=False))


@candidates.register(Dot)
def _dot(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    yield _matrix_product(node)
    yield call(Reference(TENSOR, "dot"), node.inputs)


def _product_of_vectors(node: Apply | None) -> Iterator[Code]:
    """Yield products of vectors, which PyTensor computes as those of matrices of one row."""
    if node is None or not isinstance(node.op, Dot):
        return
    parts = [
        v.owner.inputs[0] if v.owner is not None and isinstance(v.owner.op, DimShuffle) else v
        for v in node.inputs
    ]
    for left, right in dict.fromkeys((tuple(parts), (parts[0], node.inputs[1]))):
        yield call(Reference(TENSOR, "dot"), [left, right])


@candidates.register(CumOp)
def _so_far(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    function = Reference(TENSOR, "cumsum" if op.mode == "add" else "cumprod")
    yield call(function, node.inputs, {} if op.axis is None else {"axis": number(op.axis)})


def _matrix_product(node: Apply) -> Code:
    left = Operand(node.inputs[0], Binding.PRODUCT, bare=False)
    right = Operand(node.inputs[1], Binding.UNARY, bare=False)
    return code("{} @ {}", left, right, binding=Binding.PRODUCT)


@candidates.register(Join)
def _join(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    options = {"axis": number(op.axis)} if op.axis else {}
    arrays = listed([Operand(array, bare=False) for array in node.inputs])
    yield call(Reference(TENSOR, "concatenate"), [arrays], options)


@candidates.register(MakeVector)
def _vector(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    yield call(Reference(TENSOR, "stack"), [listed(node.inputs)])


@candidates.register(Alloc)
def _alloc(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    value, *shape = node.inputs
    if isinstance(value, Constant) and value.type.ndim == 0:
        for name, filled in (("zeros", 0), ("ones", 1)):
            if value.data == filled:
                dtype = quoted(str(value.type.dtype))
                yield call(Reference(TENSOR, name), [paired(shape)], {"dtype": dtype})
    yield call(Reference(TENSOR, "alloc"), node.inputs)


@candidates.register(AllocEmpty)
def _empty(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    dtype = quoted(str(op.dtype))
    yield call(Reference(TENSOR, "empty"), [paired(node.inputs)], {"dtype": dtype})


@candidates.register(Reshape)
def _reshape(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:
    array, shape = node.inputs
    lengths: Code | None = None
    if isinstance(shape, Constant):
        lengths = writer.values.of(tuple(int(length) for length in shape.data))
    elif shape.owner is not None and isinstance(shape.owner.op, MakeVector):
        lengths = paired([_as_length(v) for v in shape.owner.inputs])
    if lengths is not None:
        yield method(array, "reshape", lengths)
    yield method(array, "reshape", Operand(shape), ndim=number(op.ndim))


def _as_length(variable: Variable) -> Variable:
    """Return a length without the cast that functions of shapes add to a plain number."""
    node = variable.owner
    is_cast = node is not None and isinstance(getattr(node.op, "scalar_op", None), Cast)
    return node.inputs[0] if is_cast and isinstance(node.inputs[0], Constant) else variable


@candidates.register(SpecifyShape)
def _specify_shape(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    array, *lengths = node.inputs
    known: list[Part] = [
        text("None") if isinstance(length.type, NoneTypeT) else Operand(length)
        for length in lengths
    ]
    yield call(Reference(TENSOR, "specify_shape"), [array, paired(known)])


@candidates.register(ScalarFromTensor)
@candidates.register(TensorFromScalar)
def _conversion(op: Any, node: Apply, writer: Writer) -> Iterator[Code]:  # noqa: ARG001
    found = public_op(op)
    if found is not None:
        yield call(found, node.inputs)


@candidates.register(IfElse)
def _choice(op: Any, node: Apply, writer: Writer) -> Iterator[Candidate]:  # noqa: ARG001
    condition, *values = node.inputs
    half = len(values) // 2
    branches = [values[:half], values[half:]]
    parts = [branch[0] if half == 1 else listed(branch) for branch in branches]
    function = Reference("pytensor.conditional.op", "ifelse")
    yield Candidate(call(function, [condition, *parts]), tuple(node.outputs))


@candidates.register(RandomVariable)
def _draw(op: Any, node: Apply, writer: Writer) -> Iterator[Candidate]:
    law: Any = op
    generator, size, *parameters = node.inputs
    options: dict[str, Part] = {}
    if not isinstance(size.type, NoneTypeT):
        if isinstance(size, Constant):
            options["size"] = writer.values.of(tuple(int(length) for length in size.data))
        elif size.owner is not None and isinstance(size.owner.op, MakeVector):
            options["size"] = paired(size.owner.inputs)
        else:
            options["size"] = Operand(size)
    options |= {"rng": Operand(generator), "return_next_rng": text("True")}
    if type(getattr(pt.random, str(law.name), None)) is type(op):
        public = Reference("pytensor.tensor.random", law.name)
        for given in (options, options | {"dtype": quoted(str(law.dtype))}):
            yield Candidate(call(public, parameters, given), tuple(node.outputs))
    constructed = writer.values.op(op)
    yield Candidate(call(constructed, parameters, options), tuple(node.outputs))


@candidates.register(Blockwise)
def _blockwise(op: Any, node: Apply, writer: Writer) -> Iterator[Code | Candidate]:
    if type(op).__name__ == "Matmul" or isinstance(op.core_op, Dot):
        yield _matrix_product(node)
    yield from by_function(op.core_op, node, writer)


def by_function(op: Op, node: Apply, writer: Writer) -> Iterator[Candidate]:
    """Yield calls of public functions that are called like the class of ``op``."""
    found = public_op(node.op)
    if found is not None:
        yield Candidate(call(found, node.inputs), tuple(node.outputs))
    for function, parameters in functions_like(op):
        try:
            arguments = writer.values.arguments(core_op(op))
        except CannotBeWrittenError:
            arguments = {}
        options = {name: value for name, value in arguments.items() if name in parameters}
        for given in (options, {}) if options else ({},):
            yield Candidate(call(function, node.inputs, given), tuple(node.outputs))


def plainly(node: Apply, writer: Writer) -> Iterator[Candidate]:
    """Yield what can be written for any Op: a call of it, the node that it makes, and a node."""
    made = writer.values.op(node.op)
    yield Candidate(call(made, node.inputs), tuple(node.outputs))
    atom = Code(made.parts, made.binding, Binding.ATOM)
    outputs = code("{}.outputs", call(code("{}.make_node", atom), node.inputs))
    yield Candidate(outputs, tuple(node.outputs))
    # ``make_node`` may take other arguments than the node has.
    inputs = listed([Operand(v, bare=False) for v in node.inputs])
    results = listed([writer.values.variable(v.type, None) for v in node.outputs])
    made_of = [made, inputs, results]
    outputs = code("{}.outputs", call(Reference("pytensor.graph.basic", "Apply"), made_of))
    yield Candidate(outputs, tuple(node.outputs))
