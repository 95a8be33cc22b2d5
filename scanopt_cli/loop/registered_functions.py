"""The functions of loops that linkers ask for, registered when a graph with loops is linked."""

from __future__ import annotations

from pytensor.link.basic import Linker
from pytensor.link.jax.linker import JAXLinker
from pytensor.link.numba.linker import NumbaLinker


def register_functions(linker: Linker) -> None:
    """Let a linker know the functions of loops."""
    if isinstance(linker, JAXLinker):
        import scanopt_cli.loop.jax_dispatch
    elif isinstance(linker, NumbaLinker):
        import scanopt_cli.loop.codegen.functions  # noqa: F401
