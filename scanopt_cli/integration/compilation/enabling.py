"""`enabled`: run passes in every compilation inside a block of code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from scanopt_cli.integration.compilation.blocks import DEFAULT, Enabled, entered
from scanopt_cli.integration.compilation.function_maker import kept_compilations
from scanopt_cli.integration.compilation.progress import Progress
from scanopt_cli.integration.compilation.registering import register
from scanopt_cli.integration.compilation.watching import after_import
from scanopt_cli.integration.scan_calls import recorded_scan_calls

if TYPE_CHECKING:
    from scanopt_cli.pipeline.contract import Pass


@contextmanager
def enabled(
    passes: str | Sequence[Pass] = DEFAULT, *, cache: bool = True, progress: bool = False
) -> Iterator[Enabled]:
    """Run ``passes`` in every compilation inside of the ``with`` block.

    ::

        with scanopt_cli.enabled() as done:
            trace = pm.sample()
        done.report()

    The passes run for every caller, thread and mode, with these exceptions: a mode that rewrites
    nothing (``Mode(..., optimizer=None)``) or only what its linker needs, DebugMode, and a mode
    that excludes the tag ``scanopt`` compile without them. Functions compiled inside the block keep
    their optimised graphs after it; the block has no other lasting effect.

    Blocks may be nested; the innermost applies, and ``passes="none"`` switches the passes off. A
    mode that includes the tag ``scanopt`` uses the passes of the innermost block; outside of all
    blocks it uses the preset ``loop``.

    PyTensor handles an error in a pass like an error in its own rewriters: it logs the error and
    compiles the graph as if the passes were not there, or raises the error, depending on
    ``pytensor.config.on_opt_error``.

    Parameters
    ----------
    passes
        A pipeline as text, a preset, or passes. The first pass that trims buffers and all passes
        after it run once PyTensor has simplified the graph around the loops; those before it run
        before PyTensor's first rewrite of loops.
    cache
        Whether rewritten graphs and machine code are kept on disk, where another process that
        compiles the same finds them. The variable ``SCANOPT_CACHE=off`` of the environment has the
        same effect as ``False``; ``scanopt cache`` tells how much there is.
    progress
        Whether stderr says which function is compiled, at which stage, and how long each took.

    Yields
    ------
    Enabled
        The record of what the passes did, in ``compilations``; ``report`` prints it. The logger
        ``scanopt_cli.compiling`` reports what they do as it happens: changes at INFO, what they
        kept and why at DEBUG.

    Raises
    ------
    PassError
        If the pipeline is malformed.
    """
    block = Enabled(
        _checked(passes),
        keeps=cache,
        progress=Progress() if progress else None,
    )
    register()
    _prepare_nutpie()
    with entered(block), recorded_scan_calls(), kept_compilations():
        yield block


def _checked(passes: str | Sequence[Pass]) -> str | Sequence[Pass]:
    """Return passes that can run; the default is one, and who compiles no loop imports none."""
    if passes == DEFAULT:
        return passes
    from scanopt_cli.pipeline.grammar import as_passes

    return as_passes(passes)


@cache
def _prepare_nutpie() -> None:
    """Have nutpie's wrappers compiled once in blocks, as soon as it is imported."""

    def replace() -> None:
        from scanopt_cli.integration.compilation.nutpie_wrappers import replace_wrappers

        replace_wrappers()

    after_import("nutpie.compile_pymc", replace)
