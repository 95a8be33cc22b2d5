"""How results show themselves, for `scanopt_cli.presentation.Presented`.

The text of a result is what its command prints; one without a command of its own is its line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scanopt_cli.analysis.inspection import Inspection, ScanReport
from scanopt_cli.autodiff.derivative import Derivative
from scanopt_cli.benchmarking.result import Benchmark
from scanopt_cli.culprits.culprit import Bisection
from scanopt_cli.diff.changes import GraphDiff
from scanopt_cli.integration.capture.recording import Capture
from scanopt_cli.integration.compilation.blocks import Compilation, Enabled
from scanopt_cli.integration.nan_guarding import NanGuard
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.optimizing import OptimizeResult
from scanopt_cli.pipeline.runner import PassRun
from scanopt_cli.python_source.script import PythonScript
from scanopt_cli.reports.audit_report import audit_report
from scanopt_cli.reports.bench_report import bench_report
from scanopt_cli.reports.bisect_report import bisect_report
from scanopt_cli.reports.check_report import check_report, finding_items
from scanopt_cli.reports.check_totals import Tally, closing
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.document import Block, Item, Paragraph, Preformatted
from scanopt_cli.reports.enabled_report import compilation_report, enabled_report
from scanopt_cli.reports.first_difference_report import first_difference_report
from scanopt_cli.reports.grad_report import grad_report
from scanopt_cli.reports.graph_report import graph_report
from scanopt_cli.reports.inspect_report import inspect_report
from scanopt_cli.reports.nan_report import nan_report
from scanopt_cli.reports.optimize_report import optimize_report, remarks
from scanopt_cli.reports.result_lines import in_short
from scanopt_cli.reports.trace_report import loop_report, trace_report
from scanopt_cli.reports.verify_report import verify_report
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.rule_contract import Findings
from scanopt_cli.serialization.auditing import AuditReport
from scanopt_cli.text import cut, printable
from scanopt_cli.tracing.nan_result import FirstNan
from scanopt_cli.tracing.result import FirstDifference, LoopTrace, Trace
from scanopt_cli.verification.result import Verification

if TYPE_CHECKING:
    from rich.console import RenderableType

_LONGEST = 200


def line(result: Any) -> str:
    """Return a result in one line, with its type: ``<CheckResult: 2 findings: 2 P001>``."""
    text = printable(f"{type(result).__name__}: {in_short(result)}")
    return f"<{cut(text, _LONGEST)}>"


def text(result: Any) -> str:
    """Return what the command of a result prints in a pipe."""
    from scanopt_cli.reports import as_rich

    return as_rich.plain(blocks(result))


def renderable(result: Any) -> RenderableType:
    """Return what Rich prints as the command of a result does at a terminal."""
    from scanopt_cli.reports import as_rich

    return as_rich.renderable(blocks(result))


def html(result: Any) -> str:
    """Return a result for a notebook."""
    from scanopt_cli.reports import as_html

    return as_html.render(blocks(result))


def show(result: Any) -> None:
    """Print a result on stdout: in colour at a terminal, as plain text elsewhere."""
    if sys.stdout is not None and sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False, markup=False, emoji=False).print(renderable(result))
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text(result).encode(encoding, "replace").decode(encoding))


@singledispatch
def blocks(result: Any) -> Iterable[Block]:
    """Return what the command of a result reports."""
    return [Paragraph(in_short(result))]


@blocks.register
def _graph(graph: Graph) -> Iterable[Block]:
    return graph_report(graph)


@blocks.register
def _optimize(result: OptimizeResult) -> Iterable[Block]:
    # What `check` finds in it, which the command reports as well, would have to be computed.
    return optimize_report(result.graph.source, result)


@blocks.register
def _run(run: PassRun) -> Iterator[Block]:
    yield Paragraph(in_short(run))
    yield from remarks([run])


@blocks.register
def _inspection(inspection: Inspection) -> Iterable[Block]:
    return inspect_report(inspection)


@blocks.register
def _scan(scan: ScanReport) -> Iterable[Block]:
    return inspect_report(Inspection((scan,)))


@blocks.register
def _check(result: CheckResult) -> Iterable[Block]:
    yield from check_report(Path(result.source), result)
    yield from map(Paragraph, closing(Tally.of(result)))


@blocks.register
def _findings(findings: Findings) -> Iterable[Block]:
    return [*finding_items(findings, verbose=True)] or [Paragraph("no finding")]


@blocks.register
def _benchmark(found: Benchmark) -> Iterable[Block]:
    return bench_report(found)


@blocks.register
def _bisection(found: Bisection) -> Iterable[Block]:
    return bisect_report("bisect", found)


@blocks.register
def _diff(diff: GraphDiff) -> Iterable[Block]:
    return diff_report(diff, stands_alone=True)


@blocks.register
def _verification(verification: Verification) -> Iterable[Block]:
    return verify_report(verification)


@blocks.register
def _trace(trace: Trace) -> Iterable[Block]:
    return trace_report(trace)


@blocks.register
def _loop_trace(loop: LoopTrace) -> Iterable[Block]:
    return loop_report(loop)


@blocks.register
def _first_nan(found: FirstNan) -> Iterable[Block]:
    return nan_report(found)


@blocks.register
def _first_difference(found: FirstDifference) -> Iterable[Block]:
    return first_difference_report(found)


@blocks.register
def _derivative(derivative: Derivative) -> Iterable[Block]:
    return grad_report(derivative)


@blocks.register
def _audit(report: AuditReport) -> Iterable[Block]:
    return audit_report(report)


@blocks.register
def _python(script: PythonScript) -> Iterable[Block]:
    return [Preformatted(script.text.splitlines())]


@blocks.register
def _enabled(done: Enabled) -> Iterable[Block]:
    return enabled_report(done)


@blocks.register
def _guard(guard: NanGuard) -> Iterator[Block]:
    yield Paragraph(in_short(guard))
    for found in guard.found:
        yield from nan_report(found)


@blocks.register
def _compilation(done: Compilation) -> Iterable[Block]:
    return compilation_report(done)


@blocks.register
def _capture(kept: Capture) -> Iterator[Block]:
    yield Paragraph(in_short(kept))
    yield from (Item(str(file), depth=1) for file in kept.files)
