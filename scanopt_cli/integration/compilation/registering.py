"""The entries in PyTensor's ``optdb``: where in a compilation the passes run.

The passes have two places, since a loop whose buffers were trimmed is not one for many of them:

* What does not trim runs before PyTensor's first rewrite of loops (``scan_eqopt1``, 0.05), as soon
  as OpFromGraphs are inlined (-0.01) and equal nodes merged (0). A compiled graph is not
  differentiated any more, so mit-mots may become plain states, and all that PyTensor does later,
  which is most of the time of a compilation, it does to fewer and smaller loops. Then the loops are
  sealed: PyTensor's own rewrites of loops, some of which are unsound, do not see them.
* What trims runs when PyTensor has simplified the graph around the loops, behind the places of its
  own trimming (1.611 and 1.612). The loops are unsealed right before.
"""

from __future__ import annotations

import logging

from pytensor.compile.mode import optdb

from scanopt_cli.integration.compilation.rewriters import (
    Always,
    CompilationStage,
    Unseal,
    WhenEnabled,
)

TAG = "scanopt"
"""Modes that include this tag use the passes."""

_POSITIONS = {CompilationStage.LOOPS: 0.02, CompilationStage.TRIMS: 1.615}
_UNSEALING = 1.6145
# Modes that rewrite nothing, or only what their linker needs, stay as they are.
_TAGS_OF_MODES = ("fast_run", "fast_compile")


def register() -> None:
    """Add the passes to ``optdb``, once. What goes wrong is a warning, for PyTensor works without.

    Each stage has two entries: one that the tag switches on, and one that is in every mode that
    rewrites at all, and does nothing outside of `scanopt_cli.enabled`. Unsealing has one, which
    every mode has that may have sealed anything.
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
