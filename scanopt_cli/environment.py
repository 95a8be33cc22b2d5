"""Environment variables that scanopt reads, and sets for the programs it starts."""

from __future__ import annotations

import os
import sys
from configparser import Error, RawConfigParser
from pathlib import Path
from shlex import shlex
from typing import Any

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

INSTALLED = ("site-packages", "dist-packages")
"""The directories of installed packages."""

_STARTUP = Path(__file__).parent / "startup"
_FLAGS, _FILES = "PYTENSOR_FLAGS", "PYTENSORRC"
_BASE = "base_compiledir"


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


def directory_of_pytensor() -> Path:
    """Return where PyTensor keeps what it compiles, for all platforms: its ``base_compiledir``.

    PyTensor tells it if it is imported; it is not imported for that, which takes a second.
    """
    loaded: Any = sys.modules.get("pytensor.configdefaults")
    if loaded is not None:
        return Path(loaded.config.base_compiledir)
    given = flag_of_pytensor(_BASE)
    if given is not None:
        return Path(given).expanduser()
    local = os.environ.get("LOCALAPPDATA")
    if sys.platform == "win32" and local is not None:
        return Path(local) / "PyTensor"
    return Path(os.environ.get("HOME") or Path.home()) / ".pytensor"


def settings_of_pytensor() -> tuple[str, ...]:
    """Return what PyTensor's settings are read from: flags, and the contents of its files."""
    return (os.environ.get(_FLAGS, ""), *map(_content, _files()))


def flag_of_pytensor(name: str) -> str | None:
    """Return what a setting of PyTensor's is set to, by the rules of its ``configparser``."""
    words = shlex(os.environ.get(_FLAGS, ""), posix=True)
    words.whitespace, words.whitespace_split = ",", True
    try:
        pairs = [word.strip().partition("=") for word in words]
    except ValueError:  # a quotation is not closed
        pairs = []
    flags = {key: value for key, is_given, value in pairs if is_given}
    if name in flags:
        return flags[name]
    found = RawConfigParser()
    try:
        found.read(_files())
        return found.get("global", name)
    except (Error, OSError, UnicodeDecodeError):
        return None


def _files() -> list[Path]:
    given = os.environ.get(_FILES)
    names = "~/.pytensorrc" if given is None else given
    paths = [Path(name).expanduser() for name in names.split(os.pathsep)]
    if given is None and sys.platform == "win32":
        paths.append(Path("~/.pytensorrc.txt").expanduser())
    return paths


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
