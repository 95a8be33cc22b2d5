"""`enabled`: run passes in every compilation inside a block of code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from scanopt_cli.integration.compilation.blocks import DEFAULT, Enabled, entered
from scanopt_cli.integration.compilation.registering import register
from scanopt_cli.integration.scan_calls import recorded_scan_calls
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.grammar import as_passes


@contextmanager
def enabled(passes: str | Sequence[Pass] = DEFAULT) -> Iterator[Enabled]:
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
    block = Enabled(as_passes(passes))
    register()
    with entered(block), recorded_scan_calls():
        yield block
