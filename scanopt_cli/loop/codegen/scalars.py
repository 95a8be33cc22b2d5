"""Arithmetic of numbers, with the results and the types of PyTensor's functions for Numba.

Most operations are those that Numba has code for already, asked for by the function of NumPy that
PyTensor calls. What has no rule is called as PyTensor compiles it (`graphs`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce, singledispatch
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.link.numba.dispatch import basic
from pytensor.scalar import basic as scalars
from pytensor.scalar import math as special
from pytensor.scalar.basic import ScalarOp

from scanopt_cli.loop.codegen.values import Number, is_real
from scanopt_cli.loop.codegen.writer import Writer
from scanopt_cli.loop.llvm_math import OF_VALUES
from scanopt_cli.loop.llvm_values import of_codes
from scanopt_cli.loop.shifted_sums import ShiftedLog
from scanopt_cli.loop.vector_math import VectorComposite, VectorFunction

type Rule = Callable[[Writer, Sequence[Number]], Sequence[Number]]


def rule_of(op: Any, node: Apply) -> Rule | None:
    """Return what writes a scalar operation, given the numbers that it reads.

    ``node`` is an application of the operation to scalars, which says the dtypes; ``None`` if one
    is no dtype of real numbers. Without a rule, PyTensor's function for the operation is called.
    """
    if not all(is_real(v.type.dtype) for v in (*node.inputs, *node.outputs)):
        return None
    rule = _rule(op, node) or _compiled(op, node)

    def written(writer: Writer, numbers: Sequence[Number]) -> list[Number]:
        made = rule(writer, numbers)
        return [writer.cast(n, v.type.dtype) for n, v in zip(made, node.outputs, strict=True)]

    return written


def _compiled(op: Any, node: Apply) -> Rule:
    """Call what PyTensor compiles for an operation."""

    def rule(writer: Writer, numbers: Sequence[Number]) -> list[Number]:
        function, key = basic.numba_funcify_ensure_cache(op, node=node, ofg_memo=writer.memo)
        found = writer.call(function, numbers, is_cached=key is not None)
        made = [number for number in found if isinstance(number, Number)]
        assert len(made) == len(node.outputs)
        return made

    return rule


@singledispatch
def _rule(op: Any, node: Apply) -> Rule | None:
    """Call the function of NumPy that an operation names, if it is one of Numba's."""
    spec = getattr(op, "nfunc_spec", None)
    if not isinstance(op, ScalarOp) or spec is None or len(node.outputs) != 1:
        return None
    if type(op) not in _BY_NUMPY or len(node.inputs) != spec[1]:
        return None
    kinds = {np.dtype(v.type.dtype).kind for v in node.inputs}
    if ("b" in kinds and type(op) not in _OF_TRUTH) or (kinds != {"f"} and type(op) in _OF_FLOATS):
        return None
    function = getattr(np, spec[0])
    return lambda writer, numbers: [writer.called(function, *numbers)]


_BY_NUMPY = {
    getattr(scalars, name)
    for name in (
        *("Abs", "ArcCos", "ArcCosh", "ArcSin", "ArcSinh", "ArcTan", "ArcTan2", "ArcTanh"),
        *("Ceil", "Cos", "Cosh", "EQ", "Exp", "Exp2", "Expm1", "Floor", "GE", "GT"),
        *("Invert", "IsInf", "IsNan", "LE", "LT", "Log", "Log10", "Log1p", "Log2", "Maximum"),
        *("Minimum", "NEQ", "Neg", "AND", "OR", "XOR", "Sin", "Sinh", "Sqr", "Sqrt"),
        *("Sub", "Tan", "Tanh", "TrueDiv", "Trunc"),
    )
} | {ShiftedLog}
"""The operations whose code in Numba raises no error, and calls no function that it compiles."""
_OF_TRUTH = {scalars.EQ, scalars.NEQ, scalars.AND, scalars.OR, scalars.XOR, scalars.Invert}
_OF_FLOATS = {scalars.IsInf, scalars.IsNan}


def _folded(function: Any) -> Callable[[Any, Apply], Rule]:
    def rule(_op: Any, _node: Apply) -> Rule:
        return lambda writer, numbers: [reduce(lambda a, b: writer.called(function, a, b), numbers)]

    return rule


_rule.register(scalars.Add)(_folded(operator.add))
_rule.register(scalars.Mul)(_folded(operator.mul))


@_rule.register(scalars.Identity)
@_rule.register(scalars.Cast)
def _same(_op: Any, _node: Apply) -> Rule:
    return lambda _writer, numbers: list(numbers)


@_rule.register(scalars.Second)
def _second(_op: Any, _node: Apply) -> Rule:
    return lambda _writer, numbers: [numbers[1]]


@_rule.register(scalars.Switch)
def _switch(_op: Any, node: Apply) -> Rule:
    dtype = node.outputs[0].type.dtype

    def rule(writer: Writer, numbers: Sequence[Number]) -> list[Number]:
        condition = writer.cast(numbers[0], np.bool_)
        one, other = (writer.cast(number, dtype) for number in numbers[1:])
        return [Number(writer.builder.select(condition.code, one.code, other.code), one.dtype)]

    return rule


@_rule.register(scalars.Clip)
def _clip(_op: Any, node: Apply) -> Rule:
    dtype = node.outputs[0].type.dtype

    def rule(writer: Writer, numbers: Sequence[Number]) -> list[Number]:
        x, low, high = numbers
        is_low, is_high = writer.called(operator.lt, x, low), writer.called(operator.gt, x, high)
        found, low, high = (writer.cast(number, dtype) for number in (x, low, high))
        select = writer.builder.select
        inner = select(is_high.code, high.code, found.code)
        return [Number(select(is_low.code, low.code, inner), found.dtype)]

    return rule


@_rule.register(scalars.Reciprocal)
def _reciprocal(_op: Any, _node: Apply) -> Rule:
    return lambda writer, numbers: [
        writer.called(np.divide, writer.number(1, np.float32), numbers[0])
    ]


@_rule.register(special.Sigmoid)
def _sigmoid(_op: Any, node: Apply) -> Rule | None:
    if np.dtype(node.inputs[0].type.dtype).kind == "u":
        return None  # which cannot be negative

    def rule(writer: Writer, numbers: Sequence[Number]) -> list[Number]:
        one = writer.number(1, np.int64)
        power = writer.called(np.exp, writer.called(operator.neg, numbers[0]))
        below = writer.called(operator.add, one, power)
        return [writer.called(np.true_divide, one, below)]

    return rule


@_rule.register(special.Softplus)
def _softplus(_op: Any, node: Apply) -> Rule | None:
    dtypes = {v.type.dtype for v in (*node.inputs, *node.outputs)}
    if len(dtypes) > 1 or np.dtype(*dtypes).kind != "f":
        return None

    def rule(writer: Writer, numbers: Sequence[Number]) -> list[Number]:
        (x,) = numbers
        builder = writer.builder
        found = writer.variable(x)

        def is_below(limit: float) -> Any:
            return writer.called(operator.lt, x, writer.number(limit, np.float64)).code

        with builder.if_else(is_below(18.0)) as (low, high):
            with low, builder.if_else(is_below(-37.0)) as (lowest, other):
                with lowest:
                    builder.store(writer.called(np.exp, x).code, found)
                with other:
                    power = writer.called(np.exp, x)
                    builder.store(writer.called(np.log1p, power).code, found)
            with high, builder.if_then(is_below(33.3)):
                rest = writer.called(np.exp, writer.called(operator.neg, x))
                builder.store(writer.called(operator.add, x, rest).code, found)
        return [Number(builder.load(found), x.dtype)]

    return rule


@_rule.register(special.Erf)
@_rule.register(special.Erfc)
@_rule.register(special.GammaLn)
def _of_math(op: Any, _node: Apply) -> Rule:
    functions: dict[type, Any] = {
        special.Erf: math.erf,
        special.Erfc: math.erfc,
        special.GammaLn: math.lgamma,
    }
    function = functions[type(op)]
    return lambda writer, numbers: [writer.called(function, *numbers)]


@_rule.register(VectorFunction)
def _vector_function(op: VectorFunction, _node: Apply) -> Rule:
    function = OF_VALUES[op.function]

    def rule(writer: Writer, numbers: Sequence[Number]) -> list[Number]:
        codes = of_codes(writer.builder, function, [number.code for number in numbers])
        return [Number(code, numbers[0].dtype) for code in codes]

    return rule


@_rule.register(VectorComposite)
@_rule.register(scalars.Composite)
def _composite(op: Any, _node: Apply) -> Rule | None:
    graph = op.fgraph
    steps = [(node, rule_of(node.op, node)) for node in graph.toposort()]
    if any(rule is None for _, rule in steps):
        return None

    def rule(writer: Writer, numbers: Sequence[Number]) -> list[Number]:
        found: dict[Variable, Number] = dict(zip(graph.inputs, numbers, strict=True))

        def number(variable: Any) -> Number:
            if isinstance(variable, Constant):
                return writer.number(variable.data, variable.type.dtype)
            return found[variable]

        for node, write in steps:
            assert write is not None
            made = write(writer, [number(v) for v in node.inputs])
            found.update(zip(node.outputs, made, strict=True))
        return [number(v) for v in graph.outputs]

    return rule
