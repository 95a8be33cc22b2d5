"""Lets Numba know how what a guard returns lies in memory.

A guard computes a value only if a loop runs a step, and returns zeros otherwise. An array's type in
Numba says whether its rows (C) or its columns (F) lie one after the other, or that neither is known
(A). An inverse is of type F and zeros are of type C, so that what a conditional returns of the two
is of type A, of which the products in a loop take up to 1.7 times as long. So a `GuardBranches`
returns zeros that lie as the value does, which are copied only if there is no step.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np  # noqa: F401  # read by functions that are compiled of text
from numba.core import types
from numba.core.registry import cpu_target
from numba.extending import overload
from pytensor.compile.mode import Mode
from pytensor.compile.ops import DeepCopyOp
from pytensor.conditional.op import LazyIfElse
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_ensure_cache,
    numba_njit,
    register_funcify_and_cache_key,
)
from pytensor.tensor.basic import Alloc

_VERSION = 1
"""Of the function that Numba compiles: it is cached by this."""
_AS = {"C": "np.ascontiguousarray", "F": "np.asfortranarray"}


class GuardBranches(LazyIfElse):
    """A conditional of PyTensor's whose arrays lie in memory as those of its first branch do."""


def keep_layouts(fgraph: FunctionGraph, _mode: Mode | None) -> None:
    """Replace the guards of arrays in a graph that Numba compiles by `GuardBranches`, in place.

    A conditional is a guard if all that its second branch returns is filled with one number. Others
    stay: of what they return, a copy might be made each time.
    """
    for node in fgraph.toposort():
        op = node.op
        if type(op) is not LazyIfElse or all(v.type.ndim < 2 for v in node.outputs):
            continue
        if not all(map(_is_filled, op.false_branch.fgraph.outputs)):
            continue
        made = GuardBranches(op.true_branch, op.false_branch, op.output_types)
        new = made.make_node(*node.inputs)
        pairs = list(zip(node.outputs, new.outputs, strict=True))
        fgraph.replace_all(pairs, reason="keep_layouts")


def _is_filled(value: Variable) -> bool:
    while value.owner is not None and isinstance(value.owner.op, DeepCopyOp):
        value = value.owner.inputs[0]
    if isinstance(value, Constant):
        return True
    node = value.owner
    return node is not None and isinstance(node.op, Alloc) and isinstance(node.inputs[0], Constant)


@register_funcify_and_cache_key(GuardBranches)  # type: ignore[untyped-decorator]
def _of_guard(op: GuardBranches, **kwargs: Any) -> tuple[Callable[..., Any], str | None]:
    computed, key = numba_funcify_ensure_cache(op.true_branch, **kwargs)
    filled, other_key = numba_funcify_ensure_cache(op.false_branch, **kwargs)

    @numba_njit
    def guarded(condition: Any, *arguments: Any) -> Any:
        if condition:
            return computed(*arguments)
        return laid_out_as(computed, filled(*arguments), arguments)

    if key is None or other_key is None:
        return guarded, None
    return guarded, sha256(repr((GuardBranches, _VERSION, key, other_key)).encode()).hexdigest()


def laid_out_as(_function: Any, values: Any, _arguments: Any) -> Any:
    """Return ``values`` that lie in memory as what a function returns of the arguments."""
    return values


def _converter(function: Any, values: Any, arguments: Any) -> Callable[..., Any]:
    """Return what Numba compiles for `laid_out_as`, by the types of its arguments."""
    called = function.get_call_type(cpu_target.typing_context, tuple(arguments), {})
    wanted = called.return_type
    are_several = isinstance(wanted, types.BaseTuple)
    if are_several:
        parts = (
            f"{_copied(kind, value)}(values[{place}]),"
            for place, (kind, value) in enumerate(zip(wanted, values, strict=True))
        )
        returned = f"({' '.join(parts)})"
    else:
        returned = f"{_copied(wanted, values)}(values)"
    source = f"def laid_out(_function, values, _arguments):\n    return {returned}\n"
    made: Callable[..., Any] = compile_numba_function_src(source, "laid_out", globals())
    return made


# Numba compares the signature with that of what is returned, annotations and all.
overload(laid_out_as)(
    lambda _function, values, _arguments: _converter(_function, values, _arguments)
)


def _copied(wanted: Any, found: Any) -> str:
    """Return the name of the function that makes one type of an array of another one, or none."""
    are_arrays = isinstance(wanted, types.Array) and isinstance(found, types.Array)
    if not are_arrays or wanted.ndim < 2 or wanted.layout == found.layout:
        return ""
    return _AS.get(wanted.layout, "")
