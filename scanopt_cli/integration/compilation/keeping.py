"""Rewrite a graph with loops once for all processes, and take the time of each compilation.

Inside of `enabled`, PyTensor asks here before it rewrites a graph and when it links it (by
`function_maker`). What another process has made of an equal graph, compiled in the same way, is
read from the store; else the result is kept there. What the passes said of it is kept as well, and
read when somebody asks for it.
"""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from pytensor.compile.debug import profiling
from pytensor.compile.io import In, SymbolicOutput
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph
from pytensor.link.numba.linker import NumbaLinker

from scanopt_cli.integration.compilation.blocks import (
    Compilation,
    Enabled,
    Record,
    StageSeconds,
)
from scanopt_cli.integration.compilation.compilation_stages import has_failed
from scanopt_cli.integration.compilation.compiled_function import (
    CompiledFunction,
    compiled_function,
)
from scanopt_cli.integration.compilation.kept_graph import constants_of, read_into, written
from scanopt_cli.integration.compilation.rewriting_key import rewriting_key
from scanopt_cli.loop.registered_functions import register_functions
from scanopt_cli.store import is_on, user_store

if TYPE_CHECKING:
    from scanopt_cli.loop.codegen.kept_code import CodeSeconds

_PROTOCOL = 5
_logger = logging.getLogger("scanopt_cli.compiling")


@dataclass(slots=True)
class _Rewriting:
    """What is known of the rewriting of a graph that is about to be linked."""

    block: Enabled
    asked: CompiledFunction
    record: Record
    passes: float = 0.0
    rewriting: float = 0.0
    reading: float = 0.0


class _Kept(NamedTuple):
    """An entry of the store: a rewritten graph, and what is said when it is read.

    Attributes
    ----------
    graph
        The table of the graph.
    code_key
        The key of its machine code, if it is compiled by Numba and has one.
    warnings
        The texts of Python warnings.
    noted
        The records of the compilation and of bodies, pickled: few ask for them.
    n_noted
        The number of records.
    """

    graph: bytes
    code_key: str | None
    warnings: tuple[str, ...]
    noted: bytes
    n_noted: int


_rewritten: WeakKeyDictionary[FunctionGraph, _Rewriting] = WeakKeyDictionary()


def rewrite_or_read(
    rewrite: Callable[[], None],
    block: Enabled,
    fgraph: FunctionGraph,
    mode: Mode,
    inputs: Sequence[In],
    outputs: Sequence[SymbolicOutput],
) -> None:
    """Rewrite a graph with loops, or read what another process has rewritten it to.

    Parameters
    ----------
    rewrite
        Has PyTensor rewrite the graph.
    block
        The innermost block.
    fgraph, mode
        The graph, and how it is compiled.
    inputs, outputs
        How its inputs and outputs may be used, updates among them.
    """
    key = None
    if block.keeps and is_on() and not (config.profile_optimizer or config.optimizer_verbose):
        key = rewriting_key(fgraph, mode, inputs, outputs, block.told_passes())
    if key is None:
        _rewrite(rewrite, block, fgraph)
    elif not _read(key, block, fgraph):
        known = constants_of(fgraph)
        noted = _rewrite(rewrite, block, fgraph)
        if noted and not has_failed(fgraph):
            code_key = _code_key(fgraph) if isinstance(mode.linker, NumbaLinker) else None
            _keep(key, fgraph, known, code_key, noted)


def _rewrite(
    rewrite: Callable[[], None], block: Enabled, fgraph: FunctionGraph
) -> list[Compilation]:
    """Rewrite a graph, and return what is noted of it, and then of the bodies in it, if any is."""
    first, began = block.n_records, perf_counter()
    asked = compiled_function(fgraph)
    if block.progress is not None:
        block.progress.doing(str(asked), "PyTensor's rewriting")
    rewrite()
    seconds = perf_counter() - began
    record = block.record_of(fgraph)
    if record is None:
        return []
    of_bodies = [one.compilation() for one in block.records(first) if one is not record]
    noted = [record.compilation(), *of_bodies]
    passes = sum(one.seconds for one in noted)
    _rewritten[fgraph] = _Rewriting(block, asked, record, passes, max(0.0, seconds - passes))
    if block.progress is not None:
        block.progress.done(
            str(asked), f"rewritten in {seconds:.2f} s, {passes:.2f} of it by scanopt's passes"
        )
    return noted


def _keep(
    key: str,
    fgraph: FunctionGraph,
    known: Sequence[Any],
    code_key: str | None,
    noted: Sequence[Compilation],
) -> None:
    """Keep a rewritten graph, and what the passes said of it."""
    from scanopt_cli.analysis.same_draws import told

    texts = tuple(f"scanopt: {told(remark)}" for one in noted for remark in one.warnings)
    with suppress(Exception):  # what cannot be pickled is rewritten in each process
        graph = written(fgraph, known)
        told_later = pickle.dumps([replace(one, seconds=0.0) for one in noted], _PROTOCOL)
        kept = _Kept(graph, code_key, texts, told_later, len(noted))
        user_store().put(_name(key), pickle.dumps(tuple(kept), _PROTOCOL))


def _code_key(fgraph: FunctionGraph) -> str | None:
    """Return the key of the machine code of a graph that is not rewritten any more."""
    from scanopt_cli.loop.codegen.keys import key_of, remember_key

    key = key_of(fgraph)
    if key is not None:
        remember_key(fgraph, key)
    return key


def _read(key: str, block: Enabled, fgraph: FunctionGraph) -> bool:
    """Give ``fgraph`` the graph that it was rewritten to in another process, if there is one."""
    began = perf_counter()
    store = user_store()
    content = store.get(_name(key))
    if content is None:
        return False
    try:
        kept = _Kept(*pickle.loads(content))
        read_into(fgraph, kept.graph, constants_of(fgraph))
    except Exception:  # of a class that is gone, say
        store.discard(_name(key))
        return False
    if kept.code_key is not None:
        from scanopt_cli.loop.codegen.keys import remember_key

        remember_key(fgraph, kept.code_key)
    for text in kept.warnings:
        warnings.warn(text, stacklevel=2)
    asked = compiled_function(fgraph)

    @cache
    def noted() -> tuple[Compilation, ...]:
        found: list[Compilation] = pickle.loads(kept.noted)
        return (replace(found[0], **asked._asdict()), *found[1:])

    records = [Record(partial(_nth, noted, place)) for place in range(kept.n_noted)]
    for record in records:
        block.add(fgraph if record is records[0] else None, record)
    if _logger.isEnabledFor(logging.INFO):
        _logger.info("%s: read from %s", asked.function or asked.place, store.directory)
    seconds = perf_counter() - began
    profiling.total_graph_rewrite_time += seconds
    _rewritten[fgraph] = _Rewriting(block, asked, records[0], reading=seconds)
    if block.progress is not None:
        block.progress.done(str(asked), f"the rewritten graph was read in {seconds:.2f} s")
    return True


def _nth(noted: Callable[[], Sequence[Compilation]], place: int) -> Compilation:
    return noted()[place]


def _name(key: str) -> str:
    return f"graph-{key}"


def link(maker: FunctionMaker, create: Callable[[], Any]) -> Any:
    """Have PyTensor link a graph by ``create``; return the function, whose code may be kept."""
    known = _rewritten.pop(maker.fgraph, None)
    if known is None:
        return create()
    began = perf_counter()
    register_functions(maker.linker)  # the rewrites do so, but not who reads what they made
    function = create()
    linking = perf_counter() - began
    code = _code_seconds(function, maker, known)

    def stages() -> StageSeconds:
        return StageSeconds(
            passes=known.passes,
            rewriting=known.rewriting,
            reading=known.reading + (code.reading if code else 0.0),
            linking=linking,
            writing=code.writing if code else 0.0,
            numba=code.numba if code else 0.0,
            llvm=code.llvm if code else 0.0,
        )

    known.record.stages = stages
    return function


def _code_seconds(function: Any, maker: FunctionMaker, known: _Rewriting) -> CodeSeconds | None:
    """Let the machine code of a function be kept, and return what Numba will take to compile it."""
    if not isinstance(maker.linker, NumbaLinker):
        return None
    from scanopt_cli.loop.codegen.kept_code import keep_code

    store = user_store() if known.block.keeps and is_on() else None
    progress, what = known.block.progress, str(known.asked)

    def watch(seconds: float | None) -> None:
        if progress is None:
            return
        if seconds is None:
            progress.doing(what, "machine code, by Numba and LLVM")
        else:
            progress.done(what, f"compiled to machine code in {seconds:.2f} s")

    return keep_code(function.vm.jit_fn, maker.fgraph, store, watch)
