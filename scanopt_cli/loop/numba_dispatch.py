"""Loops in Numba: a compiled ``for`` or ``while`` that calls the compiled body.

Importing this module registers the operators with PyTensor's Numba backend.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch import basic
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_and_cache_key,
    register_funcify_and_cache_key,
    register_funcify_default_op_cache_key,
)
from pytensor.link.numba.dispatch.compile_ops import numba_deepcopy
from pytensor.scalar.basic import ScalarType
from pytensor.typed_list.type import TypedListType

from scanopt_cli.loop.operators import Loop, TracedLoop
from scanopt_cli.loop.scalar_rows import WriteScalar

_VERSION = 1
"""Part of the key under which a compiled loop is cached; raise it when the source below changes."""


@register_funcify_default_op_cache_key(WriteScalar)  # type: ignore[untyped-decorator]
def _write_scalar(op: WriteScalar, **_: Any) -> Callable[..., Any]:
    @basic.numba_njit
    def write(vector: Any, index: Any, number: Any) -> Any:
        vector[index] = number
        return vector

    @basic.numba_njit
    def add(vector: Any, index: Any, number: Any) -> Any:
        vector[index] += number
        return vector

    return add if op.adds else write


@register_funcify_and_cache_key(Loop)  # type: ignore[untyped-decorator]
def _loop(op: Loop, **kwargs: Any) -> tuple[Callable[..., Any], str | None]:
    step, step_key = numba_funcify_and_cache_key(
        op.fgraph, fgraph_name="loop_body", ofg_memo=kwargs.get("ofg_memo")
    )
    source = _source(op)
    names = {"np": np, "step": step, "numba_deepcopy": numba_deepcopy}
    function = compile_numba_function_src(source, "loop", {**vars(basic), **names})
    key = None
    if step_key is not None:
        key = sha256(f"({source}, {step_key}, {_VERSION})".encode()).hexdigest()
    return basic.numba_njit(function, boundscheck=False), key


@register_funcify_and_cache_key(TracedLoop)  # type: ignore[untyped-decorator]
def _traced_loop(op: TracedLoop, node: Apply, **_: Any) -> Any:
    kinds = {str(v.type.ttype) for v in node.outputs if isinstance(v.type, TypedListType)}
    raise TypeError(
        f"Numba has no list of {', '.join(sorted(kinds))}, so it cannot run {op}, of which such a "
        "trace is read"
    )


def _source(op: Loop) -> str:
    """Return the source of a function of the number of steps, the states and the constants."""
    states = [f"state_{i}" for i in range(op.n_states)]
    constants = [f"constant_{i}" for i in range(len(op.fgraph.inputs) - 1 - op.n_states)]
    index = "i" if isinstance(op.fgraph.inputs[0].type, ScalarType) else "np.asarray(i)"
    results = [*states, "goes_on"] if op.is_while else states
    targets = f"{', '.join(results)}{',' if len(results) == 1 else ''}"
    copied = [
        f"    {name} = numba_deepcopy({name})\n"
        for i, name in enumerate(states)
        if i not in op.destroyed
    ]
    stop = ["        if not goes_on.item():\n            break\n"] if op.is_while else []
    return (
        f"def loop({', '.join(['n_steps', *states, *constants])}):\n"
        "    n = n_steps.item()\n"
        "    if n < 0:\n"
        "        raise ValueError('a loop was asked for a negative number of steps')\n"
        f"{''.join(copied)}"
        "    for i in range(n):\n"
        f"        {targets} = step({', '.join([index, *states, *constants])})\n"
        f"{''.join(stop)}"
        f"    return {', '.join(states)}\n"
    )
