"""By what the code of a graph is cached on disk: all that it is written from.

The digests of `equivalence` say whether graphs compute the same. Code depends on more: on the order
of the nodes, on what overwrites what, and on the static shapes.
"""

from __future__ import annotations

from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph

from scanopt_cli.equivalence.in_order import in_order
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.equivalence.sources import (
    UntoldError,
    source_of_function,
    source_of_op,
    versions_of_compilers,
)

PREFIX = "scanopt"
"""How every key begins, so that nothing else has it."""

_known: WeakKeyDictionary[FunctionGraph, str] = WeakKeyDictionary()


def key_of(graph: FunctionGraph) -> str | None:
    """Return the key of the code of a graph.

    Equal graphs have equal keys in every process. ``None`` if an Op cannot be told by value.
    """
    known = _known.get(graph)
    if known is not None:
        return known
    try:
        digest = digest_of(graph, _writers() + functions_of_others())
    except UntoldError:
        return None
    return None if digest is None else PREFIX + digest


def digest_of(graph: AbstractFunctionGraph, more: bytes = b"") -> str | None:
    """Return a digest of all that the code of a graph depends on, and of ``more``.

    ``None`` if an Op cannot be told by value.
    """
    sameness = Sameness(in_order=True)
    content = sha256(more)
    try:
        for part in in_order(sameness, graph, partial(_told, sameness)):
            content.update(part)
    except UntoldError:
        return None
    return None if sameness.opaque else content.hexdigest()


def remember_key(graph: FunctionGraph, key: str) -> None:
    """Let `key_of` return a key of a graph that is not rewritten any more."""
    _known[graph] = key


def _told(sameness: Sameness, node: Apply) -> bytes:
    op: Any = node.op
    overwritten = sorted(op.destroy_map.items()), sorted(op.view_map.items())
    return sameness.of_op(op) + repr(overwritten).encode() + source_of_op(op)


def functions_of_others() -> bytes:
    """Return the versions of the functions that other packages have Numba compile for Ops.

    Raises
    ------
    UntoldError
        If such a function is of no file, but the Op may be in any graph.
    """
    from pytensor.link.numba.dispatch import basic

    content = sha256()
    for functions in (
        basic.numba_funcify_and_cache_key,
        basic.numba_funcify_default_op_cache_key,
        basic.numba_funcify,
    ):
        for kind, function in functions.registry.items():
            if kind.__module__ == "__main__":
                continue  # a graph with such an Op has no key
            found = source_of_function(function)
            if found:
                name = f"{kind.__module__}:{kind.__qualname__};"
                content.update(name.encode() + found)
    return content.digest()


@cache
def _writers() -> bytes:
    """Return a digest of what writes code: the source of the rules, and versions of packages."""
    content = sha256(versions_of_compilers())
    loop = Path(__file__).parents[1]
    for path in sorted((*loop.glob("*.py"), *loop.glob("codegen/*.py"))):
        content.update(path.read_bytes())
    return content.digest()
