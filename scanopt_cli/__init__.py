"""scanopt: the optimizer and inspector for PyTensor's loops.

Each function is one call, and takes a loaded graph, a FunctionGraph or an ``(inputs, outputs)``
pair::

    import scanopt_cli as so

    graph = so.load("model.pkl")
    result = so.optimize(graph, passes="default", verify=True)
    so.save(result.graph, "model.optimized.pkl")

What is imported here is imported when it is first used: ``import scanopt_cli`` alone does not
import PyTensor. It registers the passes in PyTensor's ``optdb`` under the tag ``scanopt``, when
PyTensor is imported; nothing uses them unless it is told to, as by `enabled`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scanopt_cli.compiling.watching import after_import

if TYPE_CHECKING:
    from scanopt_cli.capturing.recording import capture
    from scanopt_cli.compiling.enabling import enabled
    from scanopt_cli.diffing.comparing import diff
    from scanopt_cli.errors import ScanoptError
    from scanopt_cli.gradients.differentiating import grad
    from scanopt_cli.graphs.graph import Graph
    from scanopt_cli.graphs.loading import load
    from scanopt_cli.graphs.saving import save
    from scanopt_cli.identity.canonical import digest
    from scanopt_cli.passes.optimizing import optimize
    from scanopt_cli.verification.verifying import verify

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "ScanoptError",
    "capture",
    "diff",
    "digest",
    "enabled",
    "grad",
    "load",
    "optimize",
    "save",
    "verify",
]

_HOMES = {
    "Graph": "scanopt_cli.graphs.graph",
    "ScanoptError": "scanopt_cli.errors",
    "capture": "scanopt_cli.capturing.recording",
    "diff": "scanopt_cli.diffing.comparing",
    "digest": "scanopt_cli.identity.canonical",
    "enabled": "scanopt_cli.compiling.enabling",
    "grad": "scanopt_cli.gradients.differentiating",
    "load": "scanopt_cli.graphs.loading",
    "optimize": "scanopt_cli.passes.optimizing",
    "save": "scanopt_cli.graphs.saving",
    "verify": "scanopt_cli.verification.verifying",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register() -> None:
    from scanopt_cli.compiling.registering import register

    register()


after_import("pytensor", _register)
