"""Environment variables that scanopt reads, and sets for the programs it starts."""

from __future__ import annotations

import os
from pathlib import Path

CAPTURE = "SCANOPT_CAPTURE"
"""Holds the directory for captured graphs. ``startup/sitecustomize.py`` repeats this name, because
it imports scanopt only once PyTensor is imported."""

CAPTURE_SLOW = "SCANOPT_CAPTURE_SLOW"
"""How many seconds a compilation has to take for its graph to be captured."""

CAPTURE_ERRORS = "SCANOPT_CAPTURE_ERRORS"
"""If it is set, graphs are captured whose compilation or first call raises an error, and no others
but those of `CAPTURE_SLOW`."""

GATE = "SCANOPT_GATE"
"""Holds the directory that says how many of PyTensor's rewrites a command of `bisect` may apply.
``startup/sitecustomize.py`` repeats this name as well."""

STRICT = "SCANOPT_STRICT"
"""If it is set, an error of a pass ends `optimize`; else the pass leaves the loop as it is, with a
remark. ``--debug`` sets it."""

CACHE = "SCANOPT_CACHE"
"""``off`` (or ``0``) lets nothing be kept on disk for other processes, nor be read."""

CACHE_LIMIT = "SCANOPT_CACHE_LIMIT"
"""How many MiB may be kept on disk, as a whole number."""

JOBS = "SCANOPT_JOBS"
"""On how many graphs commands work at a time, where ``--jobs`` does not say so."""

_STARTUP = Path(__file__).parent / "startup"


def of_program(**variables: str) -> dict[str, str]:
    """Return the environment of a program in which scanopt is to start with PyTensor.

    The first entry of ``PYTHONPATH`` holds a ``sitecustomize.py`` that acts on the ``variables``
    when PyTensor is imported. So it makes no difference whether the program is a script, a module
    (``python -m``), a test run or a console script, or whether it compiles its graphs in processes
    that it starts itself. Interpreters that ignore the environment or skip ``sitecustomize``
    (``python -I``, ``-E``, ``-S``) notice nothing.
    """
    paths = (str(_STARTUP), os.environ.get("PYTHONPATH"))
    return {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
