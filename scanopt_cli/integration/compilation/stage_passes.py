"""Which passes of a pipeline run in which stage of a compilation, and with which options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.link.basic import Linker
from pytensor.link.c.basic import CLinker, OpWiseCLinker
from pytensor.link.jax.linker import JAXLinker
from pytensor.link.numba.linker import NumbaLinker
from pytensor.link.vm import VMLinker

from scanopt_cli.integration.compilation.compilation_stages import CompilationStage, query_of
from scanopt_cli.passes.compile_safe.overwritten import CopyOverwritten
from scanopt_cli.passes.factor_once import FactorOnce
from scanopt_cli.passes.guard_last_rows import GuardLastRows
from scanopt_cli.passes.hoist_states import HoistStates
from scanopt_cli.passes.inline_constants.inline_constants import InlineConstants
from scanopt_cli.passes.merge_duplicates import MergeDuplicates
from scanopt_cli.passes.merge_scans.merge_scans import MergeScans
from scanopt_cli.passes.merge_states import MergeStates
from scanopt_cli.passes.push_out.push_out import PushOut
from scanopt_cli.passes.push_out_sums.push_out_sums import PushOutSums
from scanopt_cli.passes.remove_unused import RemoveUnused
from scanopt_cli.passes.remove_zeros.remove_zeros import RemoveZeros
from scanopt_cli.passes.save_mem.save_mem import SaveMem
from scanopt_cli.passes.scan_to_loop.scan_to_loop import ScanToLoop
from scanopt_cli.passes.simplify.simplify import Simplify
from scanopt_cli.passes.trace_to_last.trace_to_last import TraceToLast
from scanopt_cli.passes.trim_steps.trim_steps import TrimSteps
from scanopt_cli.pipeline.contract import Pass

_PREALLOC = "scan_reduce_trace_prealloc"
_REPEATED = (
    HoistStates,
    InlineConstants,
    MergeDuplicates,
    MergeScans,
    MergeStates,
    RemoveUnused,
    RemoveZeros,
    TrimSteps,
)


def passes_of(
    stage: CompilationStage, passes: Sequence[Pass], mode: Mode | None
) -> tuple[Pass, ...]:
    """Return the passes of the pipeline ``passes`` that run in ``stage``, adapted to the mode.

    PyTensor's own rewrites of loops do not run. `PushOutSums`, `FactorOnce` and `PushOut`, which
    replace its push-outs, end the first stage, and `TrimSteps` and `SaveMem` replace its trimming
    if ``passes`` contain none that trims. Once PyTensor has simplified the graph around the loops,
    more of it is equal, unused or constant, so the passes in `_REPEATED` run again in the second
    stage; the Scans that are left become loops there, if ``passes`` turn them. PyTensor compiles
    bodies last, so the second stage ends with `CopyOverwritten`, which copies the outputs of a body
    that may alias an overwritten row of a mit_mot.
    """
    if not passes:
        return ()
    first = next((place for place, item in enumerate(passes) if item.trims), len(passes))
    if stage is CompilationStage.LOOPS:
        chosen = list(passes[:first])
        for own in (PushOutSums(), FactorOnce(), PushOut()):
            if not any(isinstance(item, type(own)) for item in chosen):
                chosen.append(own)
    else:
        again = [item for item in passes[:first] if isinstance(item, _REPEATED)]
        chosen = [
            *dict.fromkeys(again),
            *(passes[first:] or [TrimSteps(), SaveMem()]),
            CopyOverwritten(),
        ]
    return tuple(_adapted(item, mode) for item in chosen)


def _adapted(item: Pass, mode: Mode | None) -> Pass:
    linker = None if mode is None else mode.linker
    if isinstance(item, Simplify):
        # PyTensor simplifies the outer graph next, in every mode that has scanopt's entries; twice
        # takes longer and leaves no fewer loops. It simplifies bodies last, which is too late.
        query = query_of(mode)
        without = {*filter(None, item.without.split(":")), *(query.exclude if query else ())}
        return replace(item, outer=False, without=":".join(sorted(without)))
    if isinstance(item, SaveMem):
        # Backends that do not write results in place have no use for a preallocated row.
        incompatible = _PREALLOC in getattr(linker, "incompatible_rewrites", ())
        return replace(item, prealloc=bool(config.scan__allow_output_prealloc) and not incompatible)
    if isinstance(item, ScanToLoop) and item.linker == "any":
        return replace(item, linker=_linker_name(linker))
    raises = not _is_jax(linker)  # JAX cannot raise errors that depend on values
    if isinstance(item, GuardLastRows | TraceToLast):
        return replace(item, check=item.check and raises)
    if isinstance(item, HoistStates):
        return replace(item, guarded=raises)
    if isinstance(item, PushOutSums):
        return replace(item, matrices=not _is_jax(linker))
    if isinstance(item, FactorOnce):
        return replace(item, guarded=raises, tridiagonal=not _is_jax(linker))
    if isinstance(item, PushOut):
        # Both branches of JAX's conditionals must have the same shape. Other linkers take long for
        # each operation of a step.
        is_compiled = isinstance(linker, NumbaLinker | JAXLinker)
        return replace(
            item,
            guarded=raises,
            cheap=item.cheap or not is_compiled,
            reads=item.reads and not is_compiled,
        )
    return item


def _is_jax(linker: Linker | None) -> bool:
    return "jax" in getattr(linker, "required_rewrites", ())


def _linker_name(linker: Linker | None) -> str:
    """Return the name of a linker, as `ScanToLoop` takes it."""
    if isinstance(linker, NumbaLinker):
        return "numba"
    if isinstance(linker, JAXLinker):
        return "jax"
    runs_c = isinstance(linker, CLinker | OpWiseCLinker | VMLinker) and config.cxx
    unsupported = "an unknown linker" if linker is None else type(linker).__name__
    return "c" if runs_c else unsupported
