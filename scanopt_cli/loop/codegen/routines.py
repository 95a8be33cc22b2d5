"""The names by which machine code calls BLAS and LAPACK: those that SciPy is built with.

LLVM ends the process if code calls what it does not know. So importing this module registers them
all, and whoever may read code from a disk imports it.
"""

from __future__ import annotations

from llvmlite import binding
from numba.extending import get_cython_function_address

KINDS = {"float32": "s", "float64": "d"}
"""The first letter of a routine, by what it computes with."""

_ROUTINES = {
    "scipy.linalg.cython_blas": ("gemm", "gemv", "trsm"),
    "scipy.linalg.cython_lapack": ("getrf", "getrs", "posv", "potrf", "potrs"),
}


def symbol(routine: str) -> str:
    """Return the name by which code calls a routine."""
    return f"scanopt_{routine}"


def _register() -> None:
    for module, names in _ROUTINES.items():
        for name in names:
            for kind in KINDS.values():
                address = get_cython_function_address(module, kind + name)
                binding.add_symbol(symbol(kind + name), address)


_register()
