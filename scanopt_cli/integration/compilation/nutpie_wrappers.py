"""What nutpie calls, compiled once: inside of `enabled`, Numba keeps nutpie's wrappers on disk.

nutpie calls a log-density through a C function of its own, which copies the values and tells errors
by numbers. Numba compiles that in every process, with all that it calls: a closure over a compiled
function is never found in a cache. The functions here do the same, without a closure, under a key
that is made of that of the graph, and in fewer operations, which compile in less time.

They take the place of nutpie's only if those are known, by a digest of their source.
"""

from __future__ import annotations

import inspect
import logging
import math
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from hashlib import sha256
from textwrap import indent
from typing import Any

_MODULE = "nutpie.compile_pymc"
_REPLACED = ("_make_c_logp_func", "_make_c_expand_func")
_DIGESTED = ("update_user_data", "make_user_data", "make_extraction_fn", *_REPLACED)
# Of the source of `_DIGESTED`, in nutpie 0.16.10 and 0.16.11.
_KNOWN = frozenset({"b522d99bb16687788d94c81bb5bb9cb906b0e94e91c8082553739895a91041e0"})

_LOGP = """
def nutpie_logp(dim, x, gradient, logp, data):
    if dim != {n}:
        return -1
    try:
{arguments}
        value, slope = inner({names})
        if len(slope) != {n}:
            return 1
        logp[0] = value[()]
        status = 0
        for i in range({n}):
            gradient[i] = slope[i]
            if not isfinite(gradient[i]):
                status = 3
        if status == 0 and not isfinite(logp[0]):
            status = 4
        return status
    except Exception:
        return 1
"""
_EXPAND = """
def nutpie_expand(dim, expanded, x, out, data):
    if dim != {n} or expanded != {m}:
        return -1
    try:
{arguments}
        (values,) = inner({names})
        if len(values) != {m}:
            return -2
        for i in range({m}):
            out[i] = values[i]
        return 0
    except Exception:
        return -2
"""


def replace_wrappers() -> None:
    """Have nutpie make the functions of this module inside of `enabled` blocks."""
    nutpie: Any = sys.modules[_MODULE]
    if digest(nutpie) not in _KNOWN:
        found = getattr(sys.modules.get("nutpie"), "__version__", "?")
        text = "the wrappers of nutpie %s are not known: Numba compiles them in every process"
        logging.getLogger("scanopt_cli.compiling").info(text, found)
        return
    nutpie._make_c_logp_func = _in_blocks(nutpie._make_c_logp_func, _logp)
    nutpie._make_c_expand_func = _in_blocks(nutpie._make_c_expand_func, _expand)


def digest(nutpie: Any) -> str:
    """Return a digest of the source of the functions that are replaced, and of what they read."""
    try:
        source = "".join(inspect.getsource(getattr(nutpie, name)) for name in _DIGESTED)
    except (AttributeError, OSError, TypeError):
        return "none"
    return sha256(source.encode()).hexdigest()


def _in_blocks(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def made(*arguments: Any) -> Any:
        # It imports PyTensor, which nutpie has not done before.
        from scanopt_cli.integration.compilation.blocks import innermost

        found = None if innermost() is None else ours(*arguments)
        return original(*arguments) if found is None else found

    return made


def _logp(n: int, inner: Any, record: Any, keys: Sequence[str], shared: Any) -> Any:
    """Return a function of the log-density and its gradient, and its signature."""
    from numba import types

    number = types.CPointer(types.double)
    signature = types.int64(types.uint64, number, number, number, types.voidptr)
    return _cached(_LOGP, signature, inner, record, [(key, shared[key]) for key in keys], n=n)


def _expand(n: int, m: int, inner: Any, record: Any, keys: Sequence[str], shared: Any) -> Any:
    """Return a function of the values that nutpie keeps of a draw, and its signature."""
    from numba import types

    number = types.CPointer(types.double)
    signature = types.int64(types.uint64, types.uint64, number, number, types.voidptr)
    arrays = [(key, shared[key]) for key in keys]
    return _cached(_EXPAND, signature, inner, record, arrays, n=n, m=m)


def _cached(
    source: str,
    signature: Any,
    inner: Any,
    record: Any,
    shared: Sequence[tuple[str, Any]],
    **lengths: int,
) -> tuple[Callable[..., Any], Any] | None:
    """Return a function for Numba to compile, which calls one that Numba may have on disk.

    Parameters
    ----------
    source
        The text of the function.
    signature
        Its types, which nutpie calls it with.
    inner
        PyTensor's function of the graph.
    record
        The addresses and shapes of shared variables, as nutpie hands them over.
    shared
        The shared variables that ``inner`` takes, by their names in ``record``, in order.
    lengths
        How many numbers there are in the point, and in what is made of it.

    Returns
    -------
    The function and its types, or ``None`` if Numba cannot keep it.
    """
    import numba
    import numpy as np
    from pytensor.configdefaults import config
    from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS, compile_numba_function_src

    from scanopt_cli.equivalence.sources import versions_of_compilers

    in_python = getattr(inner, "py_func", None)
    # There is none if Numba is told to compile nothing.
    key = None if in_python is None else CACHED_SRC_FUNCTIONS.get(in_python)
    if key is None or not config.numba__cache:
        return None
    if any(array.dtype.kind not in "biufc" for _, array in shared):
        return None
    lines = [f"point = carray(x, ({lengths['n']},))", *_unpacked(record.dtype, shared)]
    names = ", ".join(["point", *(f"shared{i}" for i in range(len(shared)))])
    text = source.format(arguments=indent("\n".join(lines), " " * 8), names=names, **lengths)
    scope = {
        "__name__": __name__,  # by which Numba finds what a cached function reads
        "carray": numba.carray,  # type: ignore[attr-defined]
        "inner": inner,
        "intp": np.intp,
        "isfinite": math.isfinite,
        "pointer": sys.modules[_MODULE].address_as_void_pointer,
        "word": np.uint64,
        **{f"dtype{i}": array.dtype for i, (_, array) in enumerate(shared)},
    }
    dtypes = [array.dtype.str for _, array in shared]
    content = repr((text, key, dtypes, versions_of_compilers()))
    key = sha256(content.encode()).hexdigest()
    name = text.split("(")[0].split()[-1]
    function = compile_numba_function_src(text, name, scope, cache_key=key)
    return _caller(numba.cfunc(signature, cache=True)(function), signature, key), signature


def _unpacked(record: Any, shared: Sequence[tuple[str, Any]]) -> list[str]:
    """Return lines that make arrays of the words of nutpie's record: addresses and shapes."""
    if not shared:
        return []
    fields, start = record.fields["shared"]

    def word(part: str, key: str) -> int:
        kind, offset = fields.fields[part]
        return int(start + offset + kind.fields[key][1]) // 8

    lines = [f"words = carray(data, ({record.itemsize // 8},), word)"]
    for i, (key, array) in enumerate(shared):
        first = word("shape", key)
        shape = "".join(f"intp(words[{first + axis}])," for axis in range(array.ndim))
        lines.append(
            f"shared{i} = carray(pointer(words[{word('data', key)}]), ({shape}), dtype{i})"
        )
    return lines


def _caller(compiled: Any, signature: Any, key: str) -> Callable[..., Any]:
    """Return a function that calls a compiled one by its address, and keeps that alive.

    nutpie has Numba compile it, which takes hundredths of a second.
    """
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic
    from pytensor.link.numba.cache import compile_numba_function_src

    def call(_typing_context: Any, _arguments: Any) -> Any:
        def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kinds = [context.get_value_type(kind) for kind in signature.args]
            kind = ir.FunctionType(context.get_value_type(signature.return_type), kinds)
            # Not as a constant: Numba never keeps a function with an address of this kind on disk.
            address = context.add_dynamic_addr(builder, compiled.address, info="wrapper")
            values = [builder.extract_value(arguments[0], i) for i in range(len(kinds))]
            return builder.call(builder.bitcast(address, kind.as_pointer()), values)

        return signature.return_type(types.Tuple(signature.args)), write

    names = ", ".join(f"x{i}" for i in range(len(signature.args)))
    text = f"def caller({names}):\n    return call(({names}))\n"
    scope = {"__name__": __name__, "call": intrinsic(call), "compiled": compiled}
    # The key is for a user who has nutpie pass `cache=True`: without one, Numba raises an error.
    return compile_numba_function_src(text, "caller", scope, cache_key=key)
