"""The function of a graph that holds loops, for PyTensor's Numba linker.

Importing this module registers it: PyTensor asks for the function of a graph by its class, and that
of a graph without loops is made as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import CO_VARARGS
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import numba
from numba.core import types
from numba.core.event import install_timer
from numba.extending import intrinsic
from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch import basic
from pytensor.link.numba.dispatch.basic import (
    get_numba_type,
    numba_funcify,
    numba_funcify_and_cache_key,
    register_funcify_and_cache_key,
)
from pytensor.typed_list.type import TypedListType

from scanopt_cli.loop.codegen import routines  # noqa: F401  # code that is read may call them
from scanopt_cli.loop.codegen.freed_memory import keep_freed_memory
from scanopt_cli.loop.codegen.keys import key_of
from scanopt_cli.loop.operators import Loop, TracedLoop

type Function = tuple[Callable[..., Any], str | None]
"""What Numba calls, and what it is cached by; ``None`` if it is not."""

_MOST_ARGUMENTS = 500
_KNOWN_NUMBA = (0, 68)
"""The version of Numba whose own compiler `DirectCompiler` stands in for; others use theirs."""

_writing: WeakKeyDictionary[FunctionGraph, list[float]] = WeakKeyDictionary()


def writing_of(fgraph: FunctionGraph) -> list[float]:
    """Return the seconds in which the code of a graph was written, once for each signature.

    More are added when Numba asks for the code of another one. The functions that it calls, which
    Numba compiles meanwhile, are not among them.
    """
    return _writing.setdefault(fgraph, [])


_codes: WeakKeyDictionary[FunctionGraph, Callable[..., Any]] = WeakKeyDictionary()


def compile_directly(function: Any, fgraph: FunctionGraph) -> None:
    """Let Numba compile a graph's function by `DirectCompiler`, if its code is written at once."""
    code = _codes.get(fgraph)
    is_known = numba.version_info.short == _KNOWN_NUMBA
    if code is not None and is_known and takes_all_arguments(function.py_func):
        function._compiler.pipeline_class = partial(_direct_compiler, code)


def _direct_compiler(code: Callable[..., Any], *contexts: Any, **others: Any) -> Any:
    # Who finds the machine code on disk does not need it.
    from scanopt_cli.loop.codegen.direct_compiler import DirectCompiler

    return DirectCompiler(code, *contexts, **others)


def takes_all_arguments(function: Any) -> bool:
    """Whether a Python function has the form that `DirectCompiler` compiles."""
    code = function.__code__
    takes_several = bool(code.co_flags & CO_VARARGS)
    return takes_several and not code.co_argcount and not code.co_kwonlyargcount


@numba_funcify_and_cache_key.register(FunctionGraph)
def _of_graph(fgraph: FunctionGraph, **kwargs: Any) -> Function:
    """Return the function of a graph: as PyTensor makes it, if no node is a loop."""
    nodes = fgraph.toposort()
    made = None
    if any(isinstance(node.op, Loop) for node in nodes) and not _runs_python():
        made = direct_function(fgraph, nodes, kwargs.get("ofg_memo"))
    if made is not None:
        code, key = made
        return code if key is not None else _compiled(code), key
    original = numba_funcify_and_cache_key.dispatch(AbstractFunctionGraph)
    found: Function = original(fgraph, **kwargs)
    return found


@numba_funcify.register(FunctionGraph)
def _of_graph_alone(fgraph: FunctionGraph, **kwargs: Any) -> Callable[..., Any]:
    made, key = _of_graph(fgraph, **kwargs)
    return made if key is None else _compiled(made)


def _compiled(code: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of Numba's that calls code, where PyTensor does not wrap it in one."""
    made: Callable[..., Any] = basic.numba_njit(lambda *inputs: code(*inputs))
    return made


@register_funcify_and_cache_key(Loop)  # type: ignore[untyped-decorator]
def _of_loop(op: Loop, node: Apply, ofg_memo: Any = None, **_: Any) -> Function:
    """Return the function of a loop in a graph that has no direct code."""
    if _runs_python():
        return partial(_run, op, node), None
    inputs = [v.type() for v in node.inputs]
    alone = op.make_node(*inputs)
    graph = FunctionGraph(inputs, alone.outputs, clone=False)
    made = direct_function(graph, [alone], ofg_memo, squeeze=True)
    if made is None:
        raise NotImplementedError(f"{op} has too many inputs for Numba")
    return made


def _runs_python() -> bool:
    """Whether Numba is told to compile nothing."""
    settings: Any = numba.config
    return bool(settings.DISABLE_JIT)


def _run(op: Loop, node: Apply, *inputs: Any) -> Any:
    """Run a loop in Python, which PyTensor's own tests ask for, to see what they cover."""
    made: list[list[Any]] = [[None] for _ in node.outputs]
    op.perform(node, list(inputs), made)
    found = tuple(value for (value,) in made)
    return found if len(found) > 1 else found[0]


@register_funcify_and_cache_key(TracedLoop)  # type: ignore[untyped-decorator]
def _of_traced_loop(op: TracedLoop, node: Apply, **_: Any) -> Any:
    kinds = {str(v.type.ttype) for v in node.outputs if isinstance(v.type, TypedListType)}
    raise TypeError(
        f"Numba has no list of {', '.join(sorted(kinds))}, so it cannot run {op}, of which such a "
        "trace is read"
    )


def direct_function(
    fgraph: FunctionGraph, nodes: Sequence[Apply], memo: Any, *, squeeze: bool = False
) -> Function | None:
    """Return a function of a graph whose code is written at once, and what it is cached by.

    Parameters
    ----------
    fgraph, nodes
        The graph, and its nodes in their order.
    memo
        What PyTensor's functions for Ops remember in one compilation.
    squeeze
        Whether a single output is returned as it is, not in a tuple.

    Returns
    -------
    The function and its key, or ``None`` if the graph has too many inputs, or outputs of a type
    that Numba does not have.
    """
    if len(fgraph.inputs) > _MOST_ARGUMENTS:
        return None
    try:
        kinds = [_type_of(v) for v in fgraph.outputs]
    except NotImplementedError:
        return None
    keep_freed_memory()
    is_single = squeeze and len(kinds) == 1
    returned = kinds[0] if is_single else types.Tuple(kinds)
    functions: list[Any] = []

    def code(_typing_context: Any, *given: Any) -> Any:
        def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            # Who finds the machine code on disk does not need the rules.
            from scanopt_cli.loop.codegen.graphs import GraphWriter
            from scanopt_cli.loop.codegen.whole_graphs import write_graph

            began, called = perf_counter(), list[float]()
            writer = GraphWriter(context, builder, {} if memo is None else memo, functions)
            given = zip(fgraph.inputs, signature.args, arguments, strict=True)
            with install_timer("numba:compile", called.append):
                made = write_graph(writer, nodes, given, zip(fgraph.outputs, kinds, strict=True))
            writing_of(fgraph).append(perf_counter() - began - sum(called))
            return made[0] if is_single else context.make_tuple(builder, returned, made)

        return returned(*given), write

    arguments = ", ".join(f"x{i}" for i in range(len(fgraph.inputs)))
    # PyTensor has Numba's warnings of a function of this name filtered.
    name = "numba_funcified_fgraph"
    function = compile_numba_function_src(
        f"def {name}(context, {arguments}):\n    return code(context, {arguments})\n",
        name,
        {"code": code},
    )
    _codes[fgraph] = code
    return intrinsic(function), key_of(fgraph)


def _type_of(variable: Any) -> Any:
    kind = get_numba_type(variable.type)
    if isinstance(kind, types.Array) and kind.ndim == 0:
        return kind.copy(layout="C")
    return kind
