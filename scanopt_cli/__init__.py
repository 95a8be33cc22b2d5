"""scanopt: an optimizer and inspector for PyTensor's loops (Scans).

The functions that work on graphs take a loaded graph, the path of its file, a FunctionGraph or an
``(inputs, outputs)`` pair::

    import scanopt_cli as so

    graph = so.load("model.scanopt")
    result = so.optimize(graph, passes="default", verify=True)
    so.save(result.graph, "model.optimized.scanopt")

What they return is plain data. At a prompt it is one line, ``print`` shows what the command prints,
and a notebook shows tables.

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
    from scanopt_cli import loop as loop
    from scanopt_cli.analysis.inspecting import inspect as inspect
    from scanopt_cli.analysis.inspection import Inspection as Inspection
    from scanopt_cli.analysis.inspection import ScanReport as ScanReport
    from scanopt_cli.analysis.inspection import SlotReport as SlotReport
    from scanopt_cli.analysis.statistics import Statistics as Statistics
    from scanopt_cli.autodiff.derivative import Derivative as Derivative
    from scanopt_cli.autodiff.derivative import OrderReport as OrderReport
    from scanopt_cli.autodiff.differentiating import grad as grad
    from scanopt_cli.autodiff.pedigree.pedigree import Pedigree as Pedigree
    from scanopt_cli.autodiff.pedigree.pedigree import ScanRecord as ScanRecord
    from scanopt_cli.benchmarking.benching import bench as bench
    from scanopt_cli.benchmarking.result import Benchmark as Benchmark
    from scanopt_cli.culprits.bisecting import bisect as bisect
    from scanopt_cli.culprits.cost_properties import Larger as Larger
    from scanopt_cli.culprits.cost_properties import Slower as Slower
    from scanopt_cli.culprits.culprit import Bisection as Bisection
    from scanopt_cli.culprits.culprit import Culprit as Culprit
    from scanopt_cli.culprits.properties import CommandFails as CommandFails
    from scanopt_cli.culprits.properties import CompilingRaises as CompilingRaises
    from scanopt_cli.culprits.properties import Limits as Limits
    from scanopt_cli.culprits.properties import ValuesDiffer as ValuesDiffer
    from scanopt_cli.culprits.reducing import Reduced as Reduced
    from scanopt_cli.culprits.reducing import reduce as reduce
    from scanopt_cli.culprits.repro import repro as repro
    from scanopt_cli.diff.changes import Change as Change
    from scanopt_cli.diff.changes import GraphDiff as GraphDiff
    from scanopt_cli.diff.comparing import diff as diff
    from scanopt_cli.equivalence.canonical import digest as digest
    from scanopt_cli.errors import GradientError as GradientError
    from scanopt_cli.errors import LoadError as LoadError
    from scanopt_cli.errors import NanError as NanError
    from scanopt_cli.errors import NotDataError as NotDataError
    from scanopt_cli.errors import PassError as PassError
    from scanopt_cli.errors import ScanoptError as ScanoptError
    from scanopt_cli.errors import UnsafeFileError as UnsafeFileError
    from scanopt_cli.errors import VerificationError as VerificationError
    from scanopt_cli.integration.capture.recording import Capture as Capture
    from scanopt_cli.integration.capture.recording import capture as capture
    from scanopt_cli.integration.compilation.blocks import Compilation as Compilation
    from scanopt_cli.integration.compilation.blocks import Enabled as Enabled
    from scanopt_cli.integration.compilation.enabling import enabled as enabled
    from scanopt_cli.integration.compilation.left_loops import LoopLeft as LoopLeft
    from scanopt_cli.integration.nan_guarding import NanGuard as NanGuard
    from scanopt_cli.integration.nan_guarding import nan_guard as nan_guard
    from scanopt_cli.ir.graph import Graph as Graph
    from scanopt_cli.page.viewing import PageView as PageView
    from scanopt_cli.page.viewing import view as view
    from scanopt_cli.pipeline.optimizing import OptimizeResult as OptimizeResult
    from scanopt_cli.pipeline.optimizing import optimize as optimize
    from scanopt_cli.pipeline.runner import PassRun as PassRun
    from scanopt_cli.python_source.script import PythonScript as PythonScript
    from scanopt_cli.python_source.to_python import to_python as to_python
    from scanopt_cli.remarks import Remark as Remark
    from scanopt_cli.rules.graph_checking import CheckResult as CheckResult
    from scanopt_cli.rules.graph_checking import check as check
    from scanopt_cli.rules.rule_contract import Finding as Finding
    from scanopt_cli.serialization.auditing import AuditedGlobal as AuditedGlobal
    from scanopt_cli.serialization.auditing import AuditReport as AuditReport
    from scanopt_cli.serialization.auditing import audit as audit
    from scanopt_cli.serialization.loading import load as load
    from scanopt_cli.serialization.saving import save as save
    from scanopt_cli.tracing.differing import first_difference as first_difference
    from scanopt_cli.tracing.finding_nan import first_nan as first_nan
    from scanopt_cli.tracing.nan_result import FirstNan as FirstNan
    from scanopt_cli.tracing.result import FirstDifference as FirstDifference
    from scanopt_cli.tracing.result import LoopTrace as LoopTrace
    from scanopt_cli.tracing.result import SlotTrace as SlotTrace
    from scanopt_cli.tracing.result import Trace as Trace
    from scanopt_cli.tracing.tracing import trace as trace
    from scanopt_cli.verification.result import Difference as Difference
    from scanopt_cli.verification.result import Verdict as Verdict
    from scanopt_cli.verification.result import Verification as Verification
    from scanopt_cli.verification.verifying import verify as verify

# The same names by module, which import them on first use.
_MODULES = {
    name: f"scanopt_cli.{module}"
    for module, names in {
        "analysis.inspecting": "inspect",
        "analysis.inspection": "Inspection ScanReport SlotReport",
        "analysis.statistics": "Statistics",
        "autodiff.derivative": "Derivative OrderReport",
        "autodiff.differentiating": "grad",
        "autodiff.pedigree.pedigree": "Pedigree ScanRecord",
        "benchmarking.benching": "bench",
        "benchmarking.result": "Benchmark",
        "culprits.bisecting": "bisect",
        "culprits.cost_properties": "Larger Slower",
        "culprits.culprit": "Bisection Culprit",
        "culprits.properties": "CommandFails CompilingRaises Limits ValuesDiffer",
        "culprits.reducing": "Reduced reduce",
        "culprits.repro": "repro",
        "diff.changes": "Change GraphDiff",
        "diff.comparing": "diff",
        "equivalence.canonical": "digest",
        "errors": "GradientError LoadError NanError NotDataError PassError ScanoptError "
        "UnsafeFileError VerificationError",
        "integration.capture.recording": "Capture capture",
        "integration.compilation.blocks": "Compilation Enabled",
        "integration.compilation.enabling": "enabled",
        "integration.compilation.left_loops": "LoopLeft",
        "integration.nan_guarding": "NanGuard nan_guard",
        "ir.graph": "Graph",
        "page.viewing": "PageView view",
        "pipeline.optimizing": "OptimizeResult optimize",
        "pipeline.runner": "PassRun",
        "python_source.script": "PythonScript",
        "python_source.to_python": "to_python",
        "remarks": "Remark",
        "rules.graph_checking": "CheckResult check",
        "rules.rule_contract": "Finding",
        "serialization.auditing": "AuditedGlobal AuditReport audit",
        "serialization.loading": "load",
        "serialization.saving": "save",
        "tracing.differing": "first_difference",
        "tracing.finding_nan": "first_nan",
        "tracing.nan_result": "FirstNan",
        "tracing.result": "FirstDifference LoopTrace SlotTrace Trace",
        "tracing.tracing": "trace",
        "verification.result": "Difference Verdict Verification",
        "verification.verifying": "verify",
    }.items()
    for name in names.split()
}
_SUBPACKAGE = "loop"

__all__ = sorted((*_MODULES, _SUBPACKAGE))


def __getattr__(name: str) -> Any:
    if name == _SUBPACKAGE:
        return import_module(f"scanopt_cli.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


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
