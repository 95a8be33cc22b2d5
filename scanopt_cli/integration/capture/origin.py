"""Who has a graph compiled: the line of the program, and what it asked PyMC for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_BELOW = ("pytensor", "scanopt_cli")
_BETWEEN = ("pymc", "pymc_extras", "pymc_marketing", "bambi")
_CALLED = {
    "compile_logp": "logp",
    "compile_dlogp": "dlogp",
    "compile_d2logp": "d2logp",
    "logp_dlogp_function": "logp_dlogp",
    "make_initial_point_fn": "initial_point",
}
"""Functions of PyMC's, and what they compile, whoever calls them."""


@dataclass(frozen=True, slots=True)
class CaptureOrigin:
    """Where a compilation was asked for.

    Attributes
    ----------
    place
        ``script.py:12``: the innermost line outside of PyTensor and PyMC.
    name
        What PyMC was asked for there (``dlogp``, ``sample``), if it was PyMC.
    """

    place: str | None
    name: str | None


def origin() -> CaptureOrigin:
    """Return who has called, through PyTensor and PyMC."""
    frame: FrameType | None = sys._getframe(1)
    name = None
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in _BETWEEN:
            called = frame.f_code.co_name
            if name not in _CALLED.values() and not called.startswith(("_", "<")):
                name = _CALLED.get(called, called)
        elif package not in _BELOW:
            return CaptureOrigin(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}", name)
        frame = frame.f_back
    return CaptureOrigin(None, name)
