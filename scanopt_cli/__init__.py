"""scanopt: an optimizer and inspector for PyTensor's loops (Scans).

The functions that work on graphs take a loaded graph, a FunctionGraph or an ``(inputs, outputs)``
pair::

    import scanopt_cli as so

    graph = so.load("model.pkl")
    result = so.optimize(graph, passes="default", verify=True)
    so.save(result.graph, "model.optimized.pkl")

The names below are imported on first use: ``import scanopt_cli`` alone does not import PyTensor.
When PyTensor is imported, scanopt registers the passes in its ``optdb`` under the tag ``scanopt``.
A compilation uses them only if its mode includes the tag, or inside of `enabled`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scanopt_cli.integration.compilation.watching import after_import
from scanopt_cli.version import __version__ as __version__

if TYPE_CHECKING:
    from scanopt_cli.autodiff.differentiating import grad
    from scanopt_cli.diff.comparing import diff
    from scanopt_cli.equivalence.canonical import digest
    from scanopt_cli.errors import ScanoptError
    from scanopt_cli.integration.capture.recording import capture
    from scanopt_cli.integration.compilation.enabling import enabled
    from scanopt_cli.ir.graph import Graph
    from scanopt_cli.pipeline.optimizing import optimize
    from scanopt_cli.rules.graph_checking import check
    from scanopt_cli.serialization.loading import load
    from scanopt_cli.serialization.saving import save
    from scanopt_cli.verification.verifying import verify

__all__ = [
    "Graph",
    "ScanoptError",
    "capture",
    "check",
    "diff",
    "digest",
    "enabled",
    "grad",
    "load",
    "optimize",
    "save",
    "verify",
]

_MODULES = {
    "Graph": "scanopt_cli.ir.graph",
    "ScanoptError": "scanopt_cli.errors",
    "capture": "scanopt_cli.integration.capture.recording",
    "check": "scanopt_cli.rules.graph_checking",
    "diff": "scanopt_cli.diff.comparing",
    "digest": "scanopt_cli.equivalence.canonical",
    "enabled": "scanopt_cli.integration.compilation.enabling",
    "grad": "scanopt_cli.autodiff.differentiating",
    "load": "scanopt_cli.serialization.loading",
    "optimize": "scanopt_cli.pipeline.optimizing",
    "save": "scanopt_cli.serialization.saving",
    "verify": "scanopt_cli.verification.verifying",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """A package whose names are those of `_MODULES`, whatever submodules are called.

    Python sets an attribute for each submodule that is imported: ``diff``, say.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def _register() -> None:
    from scanopt_cli.integration.compilation.registering import register

    register()


after_import("pytensor", _register)
