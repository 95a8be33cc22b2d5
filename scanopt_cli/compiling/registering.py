"""The entries in PyTensor's ``optdb``: where in a compilation the passes run.

There are two places, since a loop whose buffers were trimmed is not one for PyTensor's other
rewrites of loops:

* What does not trim runs before PyTensor's first rewrite of loops (``scan_eqopt1``, 0.05), as soon
  as OpFromGraphs are inlined (-0.01) and equal nodes merged (0). A compiled graph is not
  differentiated any more, so mit-mots may become plain states, and all that PyTensor does later,
  which is most of the time of a compilation, it does to fewer and smaller loops.
* What trims runs right after PyTensor's own trimming (1.611 and 1.612). Before it, it would be
  wrong: ``scan_reduce_trace`` takes it that a loop of 5 steps has a buffer of 5 rows and the start,
  and reads by positions counted from there. The push-outs of ``scan_eqopt2`` (1.6) do not know
  short buffers either. A pass finds out by itself what is trimmed already and leaves that alone.
"""

from __future__ import annotations

import logging

from pytensor.compile.mode import optdb

from scanopt_cli.compiling.rewriters import Always, Stage, WhenEnabled

TAG = "scanopt"
"""Modes that include this tag use the passes."""

_POSITIONS = {Stage.LOOPS: 0.02, Stage.TRIMS: 1.615}
# Modes that rewrite nothing, or only what their linker needs, stay as they are.
_TAGS_OF_MODES = ("fast_run", "fast_compile")


def register() -> None:
    """Add the passes to ``optdb``, once. What goes wrong is a warning, for PyTensor works without.

    Each stage has two entries: one that the tag switches on, and one that is in every mode that
    rewrites at all, and does nothing outside of `scanopt_cli.enabled`.
    """
    try:
        for stage, position in _POSITIONS.items():
            name = f"{TAG}_{stage}"
            if name not in optdb:
                optdb.register(name, Always(stage), TAG, position=position)
                optdb.register(
                    f"{name}_when_enabled", WhenEnabled(stage), *_TAGS_OF_MODES, position=position
                )
    except Exception as error:
        logging.getLogger(__name__).warning("no passes are registered in PyTensor: %s", error)
