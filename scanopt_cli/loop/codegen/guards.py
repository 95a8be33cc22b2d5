"""Lets Numba know how what a guard returns lies in memory, and compile it in little time.

A guard computes a value only if a loop runs a step, and returns zeros otherwise. An array's type in
Numba says whether its rows (C) or its columns (F) lie one after the other, or that neither is known
(A). An inverse is of type F and zeros are of type C, so that what a conditional returns of the two
is of type A, of which the products in a loop take up to 1.7 times as long. So a `GuardBranches`
returns zeros of the type of the value. They are allocated without Numba's functions for that, which
take seconds to compile, for the texts of errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import _empty_nd_impl
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.ops import DeepCopyOp
from pytensor.conditional.op import LazyIfElse
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_ensure_cache,
    numba_njit,
    register_funcify_and_cache_key,
)
from pytensor.tensor.basic import Alloc
from pytensor.tensor.type import DenseTensorType, lscalar
from pytensor.tensor.variable import TensorConstant

_TWO = [TensorConstant(lscalar, np.asarray(0))] * 2
_VERSION = 1
"""Of the function that Numba compiles: it is cached by this."""


class GuardBranches(LazyIfElse):
    """A conditional of PyTensor's whose second branch returns zeros, of the type of the first."""


def keep_layouts(fgraph: FunctionGraph, _mode: Mode | None) -> None:
    """Replace the guards in a graph that Numba compiles by `GuardBranches`, in place.

    A conditional is a guard if all that its second branch returns are arrays of zeros. Others stay:
    of what they return, a copy might be made each time.
    """
    for node in fgraph.toposort():
        op = node.op
        if type(op) is not LazyIfElse or not all(map(_is_zero, op.false_branch.fgraph.outputs)):
            continue
        made = GuardBranches(op.true_branch, op.false_branch, op.output_types)
        new = made.make_node(*node.inputs)
        pairs = list(zip(node.outputs, new.outputs, strict=True))
        fgraph.replace_all(pairs, reason="keep_layouts")


def _is_zero(value: Variable) -> bool:
    value = _uncopied(value)
    if not isinstance(value.type, DenseTensorType):
        return False
    if value.owner is not None and isinstance(value.owner.op, Alloc):
        value = value.owner.inputs[0]
    return isinstance(value, TensorConstant) and not any(value.data.tobytes())


def _uncopied(value: Variable) -> Variable:
    """Return what a branch copies to return it."""
    while value.owner is not None and isinstance(value.owner.op, DeepCopyOp):
        value = value.owner.inputs[0]
    return value


def _lengths(value: Variable) -> list[Variable]:
    """Return the lengths of zeros."""
    value = _uncopied(value)
    if isinstance(value, Constant):
        return [TensorConstant(lscalar, np.asarray(size)) for size in value.data.shape]
    assert value.owner is not None
    return list(value.owner.inputs[1:])


@register_funcify_and_cache_key(GuardBranches)  # type: ignore[untyped-decorator]
def _of_guard(op: GuardBranches, **kwargs: Any) -> tuple[Callable[..., Any], str | None]:
    otherwise = op.false_branch.fgraph.unfreeze()
    lengths = [length for value in otherwise.outputs for length in _lengths(value)]
    # Two, so that a function of Numba's returns a tuple.
    sizes = OpFromGraph(otherwise.inputs, [*_TWO, *lengths], on_unused_input="ignore")
    computed, key = numba_funcify_ensure_cache(op.true_branch, **kwargs)
    measured, other_key = numba_funcify_ensure_cache(sizes, **kwargs)

    # PyTensor has Numba's warnings of functions whose names begin so filtered.
    @numba_njit
    def numba_funcified_fgraph_guarded(condition: Any, *arguments: Any) -> Any:
        if condition:
            return computed(*arguments)
        return _zeros_of(computed, measured(*arguments), arguments)

    own_key = None
    if key is not None and other_key is not None:
        own_key = sha256(repr((GuardBranches, _VERSION, key, other_key)).encode()).hexdigest()
    return numba_funcified_fgraph_guarded, own_key


def _zeros_as(context: Any, function: Any, lengths: Any, arguments: Any) -> Any:
    """Return zeros of the types that a function returns of ``arguments``.

    Behind two numbers that say nothing, ``lengths`` are those of all arrays.
    """
    returned = function.get_call_type(context, tuple(arguments), {}).return_type
    are_several = isinstance(returned, types.BaseTuple)
    kinds = [_allocated(kind) for kind in (returned if are_several else [returned])]

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        sizes = _numbers(context, builder, signature.args[1], given[1])
        next(sizes), next(sizes)
        made = []
        for kind in kinds:
            array = _empty_nd_impl(context, builder, kind, list(islice(sizes, kind.ndim)))
            cgutils.memset(builder, array.data, builder.mul(array.itemsize, array.nitems), 0)
            made.append(array._getvalue())
        return context.make_tuple(builder, result, made) if are_several else made[0]

    result = types.Tuple(kinds) if are_several else kinds[0]
    return result(function, lengths, arguments), write


_zeros_of: Any = intrinsic(_zeros_as)


def _allocated(kind: Any) -> Any:
    """Return the type of an array that has memory of its own, and is of another type otherwise."""
    return kind.copy(layout="F" if kind.layout == "F" else "C", readonly=False)


def _numbers(context: Any, builder: Any, kind: Any, given: Any) -> Iterator[Any]:
    """Yield the lengths in a tuple of arrays of no dimensions."""
    for one, value in zip(kind, cgutils.unpack_tuple(builder, given), strict=True):
        array = context.make_array(one)(context, builder, value)
        number = builder.load(array.data)
        yield context.cast(builder, number, one.dtype, types.intp)
