"""The entries in PyTensor's ``optdb``: where in a compilation the passes run.

The passes run at two positions, because many of them do not apply to a loop with trimmed buffers:

* Passes that do not trim run before PyTensor's first rewrite of loops (``scan_eqopt1``, 0.05), as
  soon as OpFromGraphs are inlined (-0.01) and equal nodes merged (0). A compiled graph is not
  differentiated any more, so mit_mots may become plain states. The rest of PyTensor's rewrites,
  which take most of the compilation time, then work on fewer and smaller loops. After these passes
  the loops are sealed: PyTensor's own rewrites of loops, some of which are unsound, do not see
  them.
* Passes that trim run once PyTensor has simplified the graph around the loops, after the positions
  of its own trimming (1.611 and 1.612). The loops are unsealed right before.
"""

from __future__ import annotations

import logging

from pytensor.compile.mode import optdb

from scanopt_cli.integration.compilation.compilation_stages import CompilationStage
from scanopt_cli.integration.compilation.rewriters import Always, Unseal, WhenEnabled

TAG = "scanopt"
"""Modes that include this tag use the passes."""

_POSITIONS = {CompilationStage.LOOPS: 0.02, CompilationStage.TRIMS: 1.615}
_UNSEALING = 1.6145
# Modes that rewrite nothing, or only what their linker needs, stay as they are.
_TAGS_OF_MODES = ("fast_run", "fast_compile")


def register() -> None:
    """Add the passes to ``optdb``, once. An error is only a warning: PyTensor works without them.

    Each stage has two entries: one that the tag selects, and one that every mode with rewrites
    selects, which does nothing outside of `scanopt_cli.enabled`. Unsealing has one entry, which
    every mode selects that may have sealed anything.
    """
    try:
        for stage, position in _POSITIONS.items():
            name = f"{TAG}_{stage}"
            if name not in optdb:
                optdb.register(name, Always(stage), TAG, position=position)
                optdb.register(
                    f"{name}_when_enabled", WhenEnabled(stage), *_TAGS_OF_MODES, position=position
                )
        if f"{TAG}_unseal" not in optdb:
            tags = (TAG, "minimum_compile", *_TAGS_OF_MODES)
            optdb.register(f"{TAG}_unseal", Unseal(), *tags, position=_UNSEALING)
    except Exception as error:
        logging.getLogger(__name__).warning("no passes are registered in PyTensor: %s", error)
