"""The modes for evaluating graphs: without rewrites, and compiled as a user compiles them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.compile.inner_function import HasInnerFunction, link_only_mode
from pytensor.compile.mode import Mode, get_default_mode, get_mode, predefined_modes
from pytensor.configdefaults import config
from pytensor.link.vm import VMLinker

from scanopt_cli.errors import VerificationError
from scanopt_cli.verification.checking_linker import CheckingLinker

DEFAULT = "default"
"""The mode that PyTensor uses if none is named."""

PLAIN = "plain"
"""Graphs with no rewrites except those needed to run them. Graphs are always evaluated so."""

WITHOUT_C = frozenset({PLAIN, "vm", "numba", "jax"})
"""Modes that need no C compiler."""

_OWN = (DEFAULT, PLAIN, "vm", "cvm", "numba", "jax")


def compiling_modes(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the modes in ``names`` but `PLAIN`; an item may be several, separated by commas.

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
    """Return the mode called ``name``, configured as a user would use it.

    Raises
    ------
    RuntimeError
        If the mode is ``cvm`` and PyTensor finds no C++ compiler.
    """
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
            if not config.cxx:
                raise RuntimeError(
                    "mode cvm needs a C++ compiler, and PyTensor finds none; use mode vm"
                )
            mode = Mode(VMLinker(use_cloop=True, c_thunks=True), "fast_run")
        case _:
            mode = get_mode(name.upper() if name in _OWN else name)
    return mode  # type: ignore[no-any-return]


def plain_mode(*, with_c: bool) -> Mode:
    """Return a mode that rewrites no more than its linker needs to run at all.

    ``with_c`` is for graphs that were rewritten for C and need it, and a compiler, to run.
    """
    return Mode(CheckingLinker(use_cloop=with_c, c_thunks=with_c), "minimum_compile")


def inner_mode(_op: HasInnerFunction, impl: str | None) -> Mode:
    """Return how an Op's inner graph is run; ``impl`` is "c" if the outer one is run in C.

    An Op may hold a mode of its own; here the mode under test compiles its inner graph too.
    """
    linker = "cvm" if impl == "c" else CheckingLinker(use_cloop=False)
    return link_only_mode(linker)
