"""Each type of result in one line: what a prompt, a debugger and a list of results show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from scanopt_cli.analysis.expression_text import at_tap
from scanopt_cli.analysis.inspection import Inspection, ScanReport, SlotReport
from scanopt_cli.analysis.statistics import COUNTS, Statistics, statistics
from scanopt_cli.autodiff.derivative import Check, Derivative, OrderReport
from scanopt_cli.autodiff.pedigree.pedigree import Pedigree, ScanRecord
from scanopt_cli.autodiff.stages import StageReport
from scanopt_cli.benchmarking.result import Benchmark
from scanopt_cli.culprits.culprit import Bisection, Culprit
from scanopt_cli.culprits.properties import Limits, Property
from scanopt_cli.culprits.reducing import Reduced
from scanopt_cli.diff.changes import Change, ChangeKind, GraphDiff, total
from scanopt_cli.integration.capture.recording import Capture
from scanopt_cli.integration.compilation.blocks import Compilation, Enabled
from scanopt_cli.integration.compilation.left_loops import LoopLeft
from scanopt_cli.integration.nan_guarding import NanGuard
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.grammar import described
from scanopt_cli.pipeline.optimizing import OptimizeResult
from scanopt_cli.pipeline.runner import PassRun
from scanopt_cli.python_source.script import PythonScript
from scanopt_cli.remarks import Remark
from scanopt_cli.reports.bench_report import in_words
from scanopt_cli.reports.bisect_report import culprit_in_short
from scanopt_cli.reports.change_text import same_text, sentence
from scanopt_cli.reports.check_report import about
from scanopt_cli.reports.first_difference_report import summary as where_they_part
from scanopt_cli.reports.headline import from_to, loops_of
from scanopt_cli.reports.nan_report import summary as what_is_bad
from scanopt_cli.reports.reduce_report import reduced_in_short
from scanopt_cli.reports.remark_text import text_of
from scanopt_cli.reports.verify_report import difference_text, summary
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.rule_contract import Finding
from scanopt_cli.serialization.auditing import AuditedGlobal, AuditReport
from scanopt_cli.text import at_place, few, plural
from scanopt_cli.tracing.nan_result import FirstNan
from scanopt_cli.tracing.result import FirstDifference, LoopTrace, SlotTrace, Trace
from scanopt_cli.verification.result import Difference, Verification

_MOST_NAMES = 4


@singledispatch
def in_short(result: Any) -> str:
    """Return what a result says, without its type: ``5 Scans → 2, changed by save-mem``."""
    raise NotImplementedError(f"no line for {type(result).__name__}")


@in_short.register
def _graph(graph: Graph) -> str:
    return f"{graph.source}: {contents(graph)}"


def contents(graph: Graph) -> str:
    """Return how much a graph has of what."""
    counted = statistics(graph.fgraph)
    parts = [plural(len(graph.inputs), "input")]
    if graph.shared:
        parts.append(plural(len(graph.shared), "shared variable"))
    parts += [plural(len(graph.outputs), "output"), plural(counted.outer_nodes, "node")]
    return ", ".join((*parts, loops_of(counted)))


@in_short.register
def _benchmark(found: Benchmark) -> str:
    return in_words(found)


@in_short.register
def _bisection(found: Bisection) -> str:
    return "; ".join(map(culprit_in_short, found.culprits)) or "nothing found"


@in_short.register
def _culprit(culprit: Culprit) -> str:
    return culprit_in_short(culprit)


@in_short.register
def _property(wrong: Property) -> str:
    return wrong.text


@in_short.register
def _limits(limits: Limits) -> str:
    return f"{limits.timeout:g} s of processor time, {limits.memory / 2**30:g} GB of memory"


@in_short.register
def _reduced(found: Reduced) -> str:
    return reduced_in_short(found)


@in_short.register
def _statistics(counted: Statistics) -> str:
    counts = {name: getattr(counted, name) for name in (*COUNTS, "buffers", "buffer_bytes")}
    shown = [f"{name}={count}" for name, count in counts.items() if count not in (0, "0")]
    return ", ".join(shown) or "empty"


@in_short.register
def _optimize(result: OptimizeResult) -> str:
    checked = "" if result.verification is None else f", {summary(result.verification)}"
    if not result.changed:
        pipeline = described(result.pipeline)
        return f"{loops_of(result.before)}, nothing to clean up ({pipeline}){checked}"
    names = list(dict.fromkeys(run.name for run in result.passes if run.changed))
    changed = f"changed by {few(names, _MOST_NAMES)}"
    return f"{from_to(result.before, result.after)}, {changed}{checked}"


@in_short.register
def _run(run: PassRun) -> str:
    did = plural(run.rewrites, "rewrite") if run.changed else "changed nothing"
    return f"{run.name}: {did}, {plural(len(run.remarks), 'remark')}, {run.seconds:.3f} s"


@in_short.register
def _remark(remark: Remark) -> str:
    return f"{remark.code}: {remark.scan}{at_place(remark.place)}: {text_of(remark)}"


@in_short.register
def _inspection(inspection: Inspection) -> str:
    return _loops([scan.title for scan in inspection.scans])


def _loops(names: Sequence[str]) -> str:
    return f"{plural(len(names), 'loop')}: {few(names, _MOST_NAMES)}" if names else "no loop"


@in_short.register
def _scan(scan: ScanReport) -> str:
    kinds = Counter(slot.kind for slot in scan.slots)
    slots = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{scan.title}{at_place(scan.place)}: {plural(scan.steps, 'step')}, {slots}"


@in_short.register
def _slot(slot: SlotReport) -> str:
    parts = [*map(at_tap, slot.taps), slot.dtype, *([f"{slot.rows} rows"] if slot.rows else [])]
    return f"{slot.kind} {slot.name}: {', '.join(filter(None, parts))}"


@in_short.register
def _check(result: CheckResult) -> str:
    codes = Counter(finding.code for finding in result.findings)
    known = f", beside {plural(result.known, 'known one')}" if result.known else ""
    if not codes:
        return f"nothing found{known}"
    found = ", ".join(f"{count} {code}" for code, count in codes.items())
    return f"{plural(codes.total(), 'finding')}: {found}{known}"


@in_short.register
def _finding(finding: Finding) -> str:
    return f"{finding.code} {about(finding)}: {finding.text}"


@in_short.register
def _diff(diff: GraphDiff) -> str:
    if diff.same:
        return same_text(diff)
    counts = ((kind, diff.count(kind)) for kind in ChangeKind)
    listed = ", ".join(f"{count} {kind.value}" for kind, count in counts if count)
    return f"{plural(total(diff.changes), 'change')}: {listed}"


@in_short.register
def _change(change: Change) -> str:
    where = f" in {' / '.join(change.where)}" if change.where else ""
    return f"{change.kind.value} {sentence(change)}{where}"


@in_short.register
def _verification(verification: Verification) -> str:
    return summary(verification)


@in_short.register
def _difference(difference: Difference) -> str:
    return difference_text(difference)


@in_short.register
def _trace(trace: Trace) -> str:
    return f"{trace.arguments}: {few([in_short(loop) for loop in trace.loops], _MOST_NAMES)}"


@in_short.register
def _loop_trace(loop: LoopTrace) -> str:
    return f"{loop.title}, {plural(loop.n_steps, 'step')}"


@in_short.register
def _slot_trace(one: SlotTrace) -> str:
    values = "" if one.is_constant else f", {plural(len(one.rows), 'step')}"
    return f"{one.kind} {one.name}: {one.dtype}{values}"


@in_short.register
def _first_nan(found: FirstNan) -> str:
    return what_is_bad(found)


@in_short.register
def _first_difference(found: FirstDifference) -> str:
    return where_they_part(found)


@in_short.register
def _derivative(derivative: Derivative) -> str:
    last = derivative.orders[-1]
    what = "Hessian" if derivative.full else f"order {last.order}"
    by = few(derivative.wrt, _MOST_NAMES)
    checked = "" if derivative.check is None else f", {derivative.check}"
    return (
        f"{what} of {derivative.output} by {by}, {derivative.strategy}: "
        f"{loops_of(last.statistics)}{checked}"
    )


@in_short.register
def _order(report: OrderReport) -> str:
    return f"order {report.order}: {_statistics(report.statistics)}"


@in_short.register
def _stage(report: StageReport) -> str:
    return f"{report.stage}: {_statistics(report.statistics)}, {report.seconds:.2f} s"


@in_short.register
def _value_check(check: Check) -> str:
    return str(check)


@in_short.register
def _pedigree(pedigree: Pedigree) -> str:
    return _loops([record.full_name for record in pedigree.scans])


@in_short.register
def _record(record: ScanRecord) -> str:
    origin = "" if record.parent is None else f", pullback of {record.parent}"
    return f"{record.design} {record.full_name}: {record.direction.value}{origin}"


@in_short.register
def _python(script: PythonScript) -> str:
    lines = plural(script.text.count("\n"), "line")
    arrays = f", {plural(len(script.constants), 'array')}" if script.constants else ""
    return f"{script.source}: {lines}{arrays}"


@in_short.register
def _audit(report: AuditReport) -> str:
    verdict = "would be loaded" if report.safe else f"would be refused: {report.refusal}"
    return f"{report.path}: {verdict}"


@in_short.register
def _global(found: AuditedGlobal) -> str:
    verdict = "allowed" if found.allowed else f"refused: {found.reason}"
    return f"{found.module}.{found.qualname}: {'left out unread' if found.left_out else verdict}"


@in_short.register
def _capture(kept: Capture) -> str:
    return f"{kept.directory}: {plural(len(kept.files), 'file')}"


@in_short.register
def _guard(guard: NanGuard) -> str:
    calls = plural(len(guard.found), "call")
    return f"{plural(guard.functions, 'function')}; {calls} returned a NaN or infinity"


@in_short.register
def _compilation(done: Compilation) -> str:
    name = f"{done.function or done.place}: " if done.function or done.place else ""
    return f"{name}{from_to(done.before, done.after)}, {done.seconds:.2f} s"


@in_short.register
def _left(loop: LoopLeft) -> str:
    return f"{loop.design} {loop.name}{at_place(loop.place)}: {loop.cost}"


@in_short.register
def _enabled(done: Enabled) -> str:
    compilations = plural(len(done.compilations), "compilation")
    return f"{described(done.pipeline)}: {compilations}, {done.seconds:.2f} s"
