"""Which passes of a pipeline run in which stage of a compilation, and for which target."""

from __future__ import annotations

from collections.abc import Sequence

from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.link.basic import Linker
from pytensor.link.c.basic import CLinker, OpWiseCLinker
from pytensor.link.jax.linker import JAXLinker
from pytensor.link.numba.linker import NumbaLinker
from pytensor.link.vm import VMLinker

from scanopt_cli.integration.compilation.compilation_stages import CompilationStage, query_of
from scanopt_cli.passes.factor_once import FactorOnce
from scanopt_cli.passes.of_scans.compile_safe.compile_safe import CompileSafe
from scanopt_cli.passes.of_scans.save_mem.save_mem import SaveMem
from scanopt_cli.passes.push_out.push_out import PushOut
from scanopt_cli.passes.push_out_sums.push_out_sums import PushOutSums
from scanopt_cli.passes.scan_to_loop.scan_to_loop import ScanToLoop
from scanopt_cli.passes.trim_steps.trim_steps import TrimSteps
from scanopt_cli.pipeline.contract import CompilationTarget, Pass

_PREALLOC = "scan_reduce_trace_prealloc"


def passes_of(
    stage: CompilationStage, passes: Sequence[Pass], mode: Mode | None
) -> tuple[Pass, ...]:
    """Return the passes of the pipeline ``passes`` that run in ``stage``, adapted to the mode.

    PyTensor's own rewrites of loops do not run. `PushOutSums`, `FactorOnce` and `PushOut` replace
    its push-outs, and end the first stage if ``passes`` lack them; where Scans stay Scans,
    `PushOut` does too if ``passes`` leave what is cheap in the steps. `TrimSteps` and `SaveMem`
    replace its trimming if ``passes`` contain none that trims. The passes of the first stage that
    say so are repeated in the second; the Scans that are left become loops there, if ``passes``
    turn them. PyTensor compiles bodies last, so the second stage ends with `CompileSafe`, which
    copies the outputs of a body that may alias an overwritten row of a mit_mot.
    """
    if not passes:
        return ()
    first = next((place for place, item in enumerate(passes) if item.trims), len(passes))
    if stage is CompilationStage.LOOPS:
        chosen = list(passes[:first])
        makes_loops = any(isinstance(item, ScanToLoop) for item in passes)
        has = {
            type(item)
            for item in chosen
            if not isinstance(item, PushOut) or item.cheap or makes_loops
        }
        own_passes = (PushOutSums(), FactorOnce(), PushOut())
        chosen += [own for own in own_passes if type(own) not in has]
    else:
        chosen = [
            *dict.fromkeys(item for item in passes[:first] if item.repeats),
            *(passes[first:] or [TrimSteps(), SaveMem()]),
            CompileSafe(only="overwritten"),
        ]
    target = _target(mode)
    return tuple(item.adapted(target) for item in chosen)


def _target(mode: Mode | None) -> CompilationTarget:
    linker = None if mode is None else mode.linker
    query = query_of(mode)
    # Backends that do not write results in place have no use for a preallocated row.
    has_no_use = _PREALLOC in getattr(linker, "incompatible_rewrites", ())
    return CompilationTarget(
        linker=_linker_name(linker),
        preallocates=bool(config.scan__allow_output_prealloc) and not has_no_use,
        excluded=frozenset(query.exclude if query else ()),
    )


def _linker_name(linker: Linker | None) -> str:
    if isinstance(linker, NumbaLinker):
        return "numba"
    if isinstance(linker, JAXLinker):
        return "jax"
    runs_c = isinstance(linker, CLinker | OpWiseCLinker | VMLinker) and config.cxx
    other = "an unknown linker" if linker is None else type(linker).__name__
    return "c" if runs_c else other
