"""By what a rewritten graph is kept: all that PyTensor's rewriting of it depends on.

That is the graph with its names and places, how the inputs may be used, the mode, the flags, the
passes, and the programs that rewrite: scanopt, PyTensor, and whatever package defines an Op of the
graph or adds rewrites to PyTensor. What cannot be told by value has no key, and is rewritten each
time: an Op of a notebook or of the program itself, whose methods a rewrite may call, or a rewriter
that the mode was given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytensor.compile.io import In, SymbolicOutput
from pytensor.compile.mode import Mode, optdb
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabase
from pytensor.link.numba.linker import NumbaLinker
from pytensor.scan.op import Scan

from scanopt_cli.equivalence.in_order import in_order
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.equivalence.sources import (
    UntoldError,
    source_of,
    source_of_op,
    stamp,
    version_of,
)
from scanopt_cli.integration.compilation.compilation_stages import query_of
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.written import ATTRIBUTE, written_at
from scanopt_cli.loop.codegen.keys import functions_of_others

_PACKAGES = ("llvmlite", "numba", "numpy", "pytensor", "scipy")
_FLAGS = (
    *("cast_policy", "cxx", "cycle_detection", "floatX", "numba__fastmath", "on_opt_error"),
    *("optdb__max_use_ratio", "scan__allow_gc", "scan__allow_output_prealloc"),
    *("tensor__cmp_sloppy", "tensor__insert_inplace_optimizer_validate_nb"),
)


def rewriting_key(
    fgraph: FunctionGraph,
    mode: Mode,
    inputs: Sequence[In],
    outputs: Sequence[SymbolicOutput],
    passes: tuple[str, Iterable[str]],
) -> str | None:
    """Return the key of what rewriting makes of ``fgraph``; ``None`` if it must not be kept.

    Parameters
    ----------
    fgraph
        The graph as PyTensor rewrites it, with the updates among its outputs.
    mode
        How it is compiled.
    inputs, outputs
        How the inputs and the outputs may be used; ``outputs`` include the updates.
    passes
        The passes as text, and the modules that they are of.
    """
    query = query_of(mode)
    if query is None or query.subquery or query.extra_rewrites:
        return None
    wanted = (query.include, query.require, query.exclude)
    pipeline, modules = passes
    try:
        content = sha256(_programs() + _added_rewrites(_n_rewrites()))
        for module in sorted(modules):
            content.update(source_of(module))
        if isinstance(mode.linker, NumbaLinker):
            # The key of its machine code is kept with the graph.
            content.update(functions_of_others())
        for part in (
            *(type(mode.linker).__module__, type(mode.linker).__qualname__, pipeline),
            *([sorted(tags or ()) for tags in wanted], query.position_cutoff),
            *([getattr(config, flag) for flag in _FLAGS], config.get_config_hash()),
            *((one.mutable, one.borrow, one.update is None) for one in inputs),
            *(one.borrow for one in outputs),
            sorted((fgraph.update_mapping or {}).items()),
        ):
            content.update(repr(part).encode() + b";")
        sameness = Sameness(names=True, in_order=True)
        for part in in_order(sameness, fgraph, partial(_told, sameness)):
            content.update(part)
    except UntoldError:
        return None
    return None if sameness.opaque else content.hexdigest()


def _told(sameness: Sameness, node: Any) -> bytes:
    """Return what a node's Op is but for the graphs in it, which are told by themselves."""
    op, core = node.op, core_op(node.op)
    content = source_of_op(op)
    if isinstance(core, Scan):
        if core.mode is not None or core.profile:
            raise UntoldError
        how = core.info, core.name, core.truncate_gradient, core.allow_gc, core.strict
        content += repr((type(op).__name__, getattr(op, "signature", None), how)).encode()
    else:
        content += sameness.of_op(op)
    written = written_at(node) if isinstance(core, Scan) or hasattr(core, ATTRIBUTE) else None
    return content + repr((op.destroy_map, op.view_map, written)).encode()


@cache
def _programs() -> bytes:
    """Return a digest of the versions of packages, and of scanopt's own sources as files."""
    content = sha256(repr((sys.version, [version_of(name) for name in _PACKAGES])).encode())
    for told in _stamps(str(Path(__file__).parents[2]), ""):
        content.update(repr(told).encode())
    return content.digest()


def _stamps(folder: str, inside: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the Python files of a folder, and of those in it, each with what a write changes."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{inside}{entry.name}"
        if entry.name.endswith(".py"):
            yield name, stamp(entry)
        elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
            yield from _stamps(entry.path, f"{name}/")


def _n_rewrites() -> int:
    """Return how many names the databases of rewrites have: it grows when one is added."""
    return sum(len(database.__db__) for database in _databases(optdb))


def _databases(database: RewriteDatabase) -> Iterator[RewriteDatabase]:
    yield database
    for name in sorted(database._names):
        for found in database.__db__[name]:
            if isinstance(found, RewriteDatabase):
                yield from _databases(found)


@cache
def _added_rewrites(_n: int) -> bytes:
    """Return what is known of the rewrites that other packages have added."""
    content = sha256()
    for database in _databases(optdb):
        for name in sorted(database._names):
            for found in database.__db__[name]:
                # PyTensor and scanopt register some of theirs when they are imported.
                source = b"".join(map(source_of, sorted(_modules(found))))
                content.update(name.encode() + b";" + source if source else b"")
    return content.digest()


def _modules(rewriter: Any) -> set[str]:
    """Return the modules of a rewriter, and of the functions that it calls."""
    inside = (getattr(rewriter, name, None) for name in ("fn", "node_rewriter"))
    found = {type(rewriter).__module__, getattr(rewriter, "__module__", "builtins")}
    return found.union(*(_modules(one) for one in inside if one is not None))
