"""Where a program requests a compilation: its source line, and what it asked PyMC for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_SKIPPED_PACKAGES = ("pytensor", "scanopt_cli")
_PYMC_PACKAGES = ("pymc", "pymc_extras", "pymc_marketing", "bambi")
_COMPILED_BY = {
    "compile_logp": "logp",
    "compile_dlogp": "dlogp",
    "compile_d2logp": "d2logp",
    "logp_dlogp_function": "logp_dlogp",
    "make_initial_point_fn": "initial_point",
}
"""Functions of PyMC and what they compile; these names win over those of their callers."""


@dataclass(frozen=True, slots=True)
class CaptureOrigin:
    """Where a program requested a compilation.

    Attributes
    ----------
    place
        ``script.py:12``: the innermost line outside of PyTensor, PyMC and packages built on PyMC.
    file, line
        That line, by the whole path of its file.
    name
        What the program asked PyMC for there (``dlogp``, ``sample``); ``None`` without PyMC.
    """

    place: str | None
    name: str | None
    file: str | None = None
    line: int | None = None

    def what(self, function: str | None) -> str:
        """Return what is compiled, by the name of the function if it has one."""
        return f"function {function}" if function else self.name or "a function"


def origin() -> CaptureOrigin:
    """Return the origin of the current compilation, from the stack of callers."""
    frame: FrameType | None = sys._getframe(1)
    name = None
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in _PYMC_PACKAGES:
            called = frame.f_code.co_name
            if name not in _COMPILED_BY.values() and not called.startswith(("_", "<")):
                name = _COMPILED_BY.get(called, called)
        elif package not in _SKIPPED_PACKAGES:
            file, line = frame.f_code.co_filename, frame.f_lineno
            return CaptureOrigin(f"{Path(file).name}:{line}", name, file, line)
        frame = frame.f_back
    return CaptureOrigin(None, name)
