"""The modes in which graphs are evaluated: as they are, and compiled as a user compiles them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.compile.mode import Mode, get_default_mode, get_mode, predefined_modes
from pytensor.configdefaults import config
from pytensor.link.vm import VMLinker

from scanopt_cli.errors import VerificationError

DEFAULT = "default"
"""The mode that PyTensor compiles with if it is told nothing else."""

PLAIN = "plain"
"""Graphs as they are, rewritten no more than it takes to run them; always evaluated."""

WITHOUT_C = frozenset({PLAIN, "vm", "numba", "jax"})
"""Modes that need no C compiler."""

_OWN = (DEFAULT, PLAIN, "vm", "cvm", "numba", "jax")


def compiling_modes(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the modes that ``names`` lists, without `PLAIN`; each may be several, by commas.

    Raises
    ------
    VerificationError
        If there is no such mode.
    """
    listed = [names] if isinstance(names, str) else names
    modes = dict.fromkeys(name.strip() for text in listed for name in text.split(","))
    for name in modes:
        if name not in _OWN and name not in predefined_modes:
            raise VerificationError(
                f"there is no mode {name!r}",
                hint=f"use {', '.join(_OWN)}, or a mode of PyTensor's, such as FAST_COMPILE",
            )
    return tuple(name for name in modes if name != PLAIN)


def compiling_mode(name: str) -> Mode:
    """Return the mode called ``name``, as a user would use it.

    Raises
    ------
    RuntimeError
        If what the mode needs is not installed.
    """
    _need_compiler(name)
    mode: Any
    match name:
        case "default":
            mode = get_default_mode()
        case "vm":
            # Fused arithmetic is for C and Numba: in Python, PyTensor 3.3.7 computes some of it in
            # single precision (a reciprocal), and overflows small integers.
            linker = VMLinker(use_cloop=False, c_thunks=False)
            mode = Mode(linker, "fast_run").excluding("fusion")
        case "cvm":
            mode = Mode(VMLinker(use_cloop=True, c_thunks=True), "fast_run")
        case _:
            mode = get_mode(name.upper() if name in _OWN else name)
    return mode  # type: ignore[no-any-return]


def plain_mode(*, with_c: bool) -> Mode:
    """Return a mode that rewrites no more than its linker needs to run at all.

    ``with_c`` is for graphs that were rewritten for C, and need it to run.
    """
    if with_c:
        _need_compiler("cvm")
    return Mode(VMLinker(use_cloop=with_c, c_thunks=with_c), "minimum_compile")


def _need_compiler(name: str) -> None:
    if name == "cvm" and not config.cxx:
        raise RuntimeError("mode cvm needs a C++ compiler, and PyTensor finds none; use mode vm")
