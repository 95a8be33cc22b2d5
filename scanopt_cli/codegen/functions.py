"""The function of a graph that holds loops, for PyTensor's Numba linker.

Importing this module registers it: PyTensor asks for the function of a graph by its class, and that
of a graph without loops is made as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import intrinsic
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch import basic
from pytensor.link.numba.dispatch.basic import (
    get_numba_type,
    numba_funcify,
    numba_funcify_and_cache_key,
)

from scanopt_cli.codegen import (  # noqa: F401
    arrays,
    diagonals,
    elementwise,
    factors,
    indexing,
    loops,
    products,
)
from scanopt_cli.codegen.graphs import GraphWriter
from scanopt_cli.codegen.values import Array, Number
from scanopt_cli.loop.operators import Loop

_MOST_ARGUMENTS = 500


def direct_function(fgraph: FunctionGraph, memo: Any) -> Any:
    """Return a function of a graph whose code is written at once; ``None`` if it cannot be."""
    nodes = fgraph.toposort()
    if not any(isinstance(node.op, Loop) for node in nodes):
        return None
    constants = _arrays(fgraph)
    inputs: list[Variable] = [*fgraph.inputs, *constants]
    if len(inputs) > _MOST_ARGUMENTS or len(set(fgraph.inputs)) < len(fgraph.inputs):
        return None
    try:
        returned = types.Tuple([_type_of(v) for v in fgraph.outputs])
    except NotImplementedError:
        return None

    def code(_typing_context: Any, *kinds: Any) -> Any:
        def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            writer = GraphWriter(context, builder, memo)
            for variable, kind, argument in zip(inputs, signature.args, arguments, strict=True):
                shape = getattr(variable.type, "shape", ())
                writer.bind(
                    variable, writer.from_numba(argument, kind, is_owned=False, shape=shape)
                )
            writer.write(nodes, fgraph.outputs)
            made = [_returned(writer, v, t) for v, t in zip(fgraph.outputs, returned, strict=True)]
            for variable in list(writer.known):
                writer.drop(variable)
            return context.make_tuple(builder, returned, made)

        return returned(*kinds), write

    names = [f"x{i}" for i in range(len(inputs))]
    arguments = ", ".join(names)
    written = compile_numba_function_src(
        f"def written(context, {arguments}):\n    return code(context, {arguments})\n",
        "written",
        {"code": code},
    )
    given, fixed = names[: len(fgraph.inputs)], names[len(fgraph.inputs) :]
    values = {name: basic.numba_typify(v.data) for name, v in zip(fixed, constants, strict=True)}
    function = compile_numba_function_src(
        f"def direct({', '.join(given)}):\n    return written({arguments})\n",
        "direct",
        {"written": intrinsic(written), **values},
    )
    return basic.numba_njit(function)


def _returned(writer: GraphWriter, variable: Any, kind: Any) -> Any:
    """Return an output as Numba represents it, with a reference for the caller."""
    value = writer.value(variable)
    if isinstance(value, Number) and isinstance(kind, types.Array):
        return writer.in_numba(writer.as_array(value, kind.ndim))
    writer.keep(value)
    if isinstance(value, Array):
        return writer.in_numba(value)
    return value.code


def _type_of(variable: Any) -> Any:
    kind = get_numba_type(variable.type)
    if isinstance(kind, types.Array) and kind.ndim == 0:
        return kind.copy(layout="C")
    return kind


def _arrays(fgraph: AbstractFunctionGraph) -> list[Constant]:
    """Return the constants of a graph that are arrays of several entries."""
    return [
        v
        for v in fgraph.variables
        if isinstance(v, Constant) and getattr(v.data, "size", 0) != 1 and hasattr(v.type, "ndim")
    ]


def _with_key(fgraph: FunctionGraph, **kwargs: Any) -> tuple[Callable[..., Any], str | None]:
    memo = kwargs.get("ofg_memo")
    made = direct_function(fgraph, {} if memo is None else memo)
    if made is None:
        original = numba_funcify_and_cache_key.dispatch(AbstractFunctionGraph)
        found: tuple[Callable[..., Any], str | None] = original(fgraph, **kwargs)
        return found
    return made, None


numba_funcify_and_cache_key.register(FunctionGraph)(_with_key)
numba_funcify.register(FunctionGraph)(lambda fgraph, **kwargs: _with_key(fgraph, **kwargs)[0])
