"""``scanopt optimize``: run passes on graphs and show what they did."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from shlex import join
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.console import out, plug_in_warnings, status, tell
from scanopt_cli.cli.exits import ExitCode, code_of, finding
from scanopt_cli.cli.options import (
    AllowPackages,
    Force,
    Format,
    GraphFiles,
    HtmlFile,
    Modes,
    OutputFile,
    OutputFormat,
    Pipeline,
    StepCode,
    Trust,
    require_page_for,
    require_use_of_force,
)
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.results import print_blocks, print_json, print_to_stderr
from scanopt_cli.cli.session import session
from scanopt_cli.cli.targets import targets, write
from scanopt_cli.errors import PassFailedError, ScanoptError
from scanopt_cli.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scanopt_cli.ir.graph import Graph
    from scanopt_cli.page.contents.parts import Part
    from scanopt_cli.page.contents.stages import Stages
    from scanopt_cli.pipeline.contract import Pass
    from scanopt_cli.pipeline.optimizing import OptimizeResult, Snapshot
    from scanopt_cli.reports.document import Block
    from scanopt_cli.rules.graph_checking import CheckResult


class DiffKind(StrEnum):
    """How changes are shown."""

    TREE = "tree"
    STRUCTURAL = "structural"
    NONE = "none"


def optimize(
    graphs: GraphFiles,
    passes: Pipeline = "default",
    output: OutputFile = None,
    force: Force = False,
    diff: Annotated[
        DiffKind,
        typer.Option(
            help="Show what changed in all: dprint trees, matched graphs as `scanopt diff` does, "
            "or nothing."
        ),
    ] = DiffKind.NONE,
    patch: Annotated[
        bool, typer.Option("--patch", "-u", help="The same as --diff structural.")
    ] = False,
    stat: Annotated[
        bool, typer.Option("--stat", help="Show how many changes each loop has, and no more.")
    ] = False,
    print_changed: Annotated[
        bool,
        typer.Option(
            "--print-changed",
            help="Show what each pass changes, on stderr, as it has run: trees, or as --diff says.",
        ),
    ] = False,
    lines: Annotated[int, typer.Option(min=0, help="Longest diff, in lines; 0 for no limit.")] = 60,
    depth: Annotated[
        int | None, typer.Option(min=1, help="How deep the trees are printed.")
    ] = None,
    time_passes: Annotated[
        bool,
        typer.Option(
            "--time-passes", help="Show the wall time of each pass, and of what --verify compiles."
        ),
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Stop after so many rewrites, for bisection.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Exit with 1 if `scanopt check` finds anything that the passes mend."
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Evaluate the result against the original before writing it."
        ),
    ] = False,
    mode: Modes = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show what `check` finds in the result, only.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what each pass did, missed and found out.")
    ] = False,
    html: HtmlFile = None,
    code: StepCode = False,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Run passes on graphs; show what they did on one screen, and what is left to do."""
    from scanopt_cli.gates.passes_gate import PassesGate
    from scanopt_cli.pipeline.grammar import parse
    from scanopt_cli.pipeline.optimizing import optimize as optimize_graph
    from scanopt_cli.reports import check_report
    from scanopt_cli.reports.changes_report import showing_changes
    from scanopt_cli.reports.document import Paragraph
    from scanopt_cli.rules.graph_checking import check as check_graph
    from scanopt_cli.verification.modes import DEFAULT

    if mode and not verify:
        raise ScanoptError("is for --verify", where="--mode", hint="give both, or neither")
    with plug_in_warnings():
        sequence = parse(passes)
        gate = PassesGate.of(sequence) if check else None
    graphs = list(dict.fromkeys(graphs))
    require_use_of_force(output, force=force)
    target_of = {} if output is None else targets(graphs, output, force=force)
    require_page_for(html, code=code)
    require_page(html, graphs, [("-o", target) for target in target_of.values()])
    kind = DiffKind.STRUCTURAL if patch else diff
    shown = _Shown(output_format, kind, stat, lines, depth, quiet, verbose)
    batch = Batch(graphs)
    parts: list[Part] = []
    codes = [ExitCode.CLEAN]
    gate_findings: dict[Path, CheckResult] = {}
    # What `check` finds in the results is always told, with --check or without.
    findings_left: dict[Path, CheckResult] = {}
    for number, path in enumerate(graphs, 1):
        title = f"{path} ({number} of {len(graphs)})" if len(graphs) > 1 else str(path)
        with (
            batch.attempt(path),
            session(path, trust=trust, allow_packages=allow_package) as work,
        ):
            with status(title, "optimizing") as show_progress:
                started = perf_counter()
                graph = work.load(path, recorded=verify)
                loaded = perf_counter()
                stages, changes = None, None
                if html is not None:
                    from scanopt_cli.page.contents.stages import Stages

                    stages = Stages(graph)
                if print_changed:
                    changes = showing_changes(
                        print_to_stderr,
                        graph,
                        structural=kind is DiffKind.STRUCTURAL,
                        depth=depth,
                        lines=lines,
                    )
                with _how_to_report(path, sequence):
                    result = optimize_graph(
                        graph,
                        sequence,
                        verify=verify,
                        modes=mode or DEFAULT,
                        limit=limit,
                        watch=_watching(stages, changes),
                        progress=show_progress,
                    )
                optimized = perf_counter()
                findings_left[path] = check_graph(result.graph)
                if gate is not None:
                    gate_findings[path] = gate.check(graph, path)
                seconds = {
                    "loading": loaded - started,
                    "optimizing": optimized - loaded,
                    "checking": perf_counter() - optimized,
                }
            target = target_of.get(path)
            if output_format is Format.JSON:
                batch.results.append(
                    _entry(path, result, findings_left[path], gate_findings.get(path))
                )
            else:
                print_blocks(
                    output_format, shown.blocks(graph, result, findings_left[path], target)
                )
                if output_format is Format.MARKDOWN:
                    out().out()  # the next file's heading is apart from the last item
            if time_passes:
                print_to_stderr(_times(result))
            _print_warnings(path, result, limit)
            codes.append(_write_if_verified(path, result, target, trust=trust))
            if stages is not None:
                from scanopt_cli.page.contents.optimize_page import Optimized, optimize_part
                from scanopt_cli.page.contents.step_code import code_sections

                done = Optimized(
                    result=result,
                    left=findings_left[path],
                    mendable=gate_findings.get(path),
                    stages=stages,
                    seconds=seconds,
                    more=tuple(code_sections(result.graph)) if code else (),
                )
                parts.append(optimize_part(done, str(path)))
    if output_format is Format.JSON:
        print_json("optimize", {"graphs": batch.results})
    elif gate_findings:
        print_blocks(output_format, check_report.gate(gate_findings))
    elif len(findings_left) > 1 and not quiet:
        print_blocks(output_format, [Paragraph(), Paragraph(check_report.total(findings_left))])
    if html is not None:
        write_page(html, parts, batch, verdict=check_report.total(findings_left))
    codes.append(finding(any(result.findings for result in gate_findings.values())))
    return batch.finish(max(codes))


def _watching(
    stages: Stages | None, changes: Callable[[Snapshot], None] | None
) -> Callable[[Snapshot], None] | None:
    """Return what is called after each pass that changes a graph: what keeps, and what prints."""
    watches = [*([stages.watch] if stages is not None else []), *([changes] if changes else [])]

    def watch(snapshot: Snapshot) -> None:
        for each in watches:
            each(snapshot)

    return watch if watches else None


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is printed of a result."""

    output_format: Format
    diff: DiffKind
    stat: bool
    lines: int
    depth: int | None
    quiet: bool
    verbose: bool

    def blocks(
        self, graph: Graph, result: OptimizeResult, left: CheckResult, target: Path | None
    ) -> Iterable[Block]:
        """Yield the report of a result in which ``left`` is found, written to ``target``."""
        from scanopt_cli.reports.changes_report import changes_report
        from scanopt_cli.reports.check_report import finding_items
        from scanopt_cli.reports.document import Heading
        from scanopt_cli.reports.headline import headline
        from scanopt_cli.reports.optimize_report import next_steps, optimize_report

        if self.quiet:
            if left.findings:
                yield Heading(graph.source)
            yield from finding_items(left.findings, verbose=self.verbose)
            return
        changes: Iterable[Block] = ()
        if result.changed and (self.stat or self.diff is not DiffKind.NONE):
            changes = changes_report(
                graph,
                result.graph,
                structural=self.stat or self.diff is DiffKind.STRUCTURAL,
                depth=self.depth,
                lines=self.lines,
                stat=self.stat,
            )
        if self.stat:
            yield Heading(graph.source, headline(result, len(left.findings)))
            yield from changes
            return
        yield from optimize_report(
            graph.source, result, left.findings, tuple(changes), verbose=self.verbose
        )
        if self.output_format is Format.RICH:
            written = None if target is None else (graph.source, str(target))
            yield from next_steps(result, left, written)


def _times(result: OptimizeResult) -> Iterator[Block]:
    from scanopt_cli.reports.optimize_report import timings
    from scanopt_cli.reports.times_report import times_report

    yield timings(result.passes)
    if result.verification is not None and result.verification.times is not None:
        yield from times_report(result.verification.times)


def _entry(
    path: Path, result: OptimizeResult, left: CheckResult, found: CheckResult | None
) -> dict[str, Any]:
    """Return a result as an entry in JSON, with what --check ``found``."""
    from scanopt_cli.reports.as_json import plain

    check = {} if found is None else {"check": plain(found.findings)}
    return {"source": str(path), **plain(result), "findings": plain(left.findings), **check}


def _print_warnings(path: Path, result: OptimizeResult, limit: int | None) -> None:
    """Print warnings on stderr: of the graph, of passes that failed, of a limit that was met."""
    from scanopt_cli.reports.remark_text import failures, text_of

    for remark in result.warnings:
        tell(f"warning: {path}: {remark.scan}: {text_of(remark)}")
    failed = failures(result.passes)
    for remark in failed:
        tell(f"warning: {path}: {text_of(remark)} (pass {remark.pass_name}, {remark.scan})")
    if failed:
        tell(f"to report it, a script: {_reporting(path, result.pipeline)}")
    if limit is not None and sum(run.rewrites for run in result.passes) >= limit:
        tell(f"stopped after {plural(limit, 'rewrite')}, as --limit says")


@contextmanager
def _how_to_report(path: Path, passes: Sequence[Pass]) -> Iterator[None]:
    """Let the error of a pass that ends the work say how to report it."""
    from scanopt_cli.pipeline.grammar import print_pipeline

    try:
        yield
    except PassFailedError as error:
        how = f"a script that shows it: {_reporting(path, print_pipeline(passes))}"
        error.hint = f"{error.hint}; {how}" if error.hint else how
        raise


def _reporting(path: Path, pipeline: str) -> str:
    """Return the command that finds the rewrite and writes a script on which the pass fails."""
    words = ["scanopt", "bisect", str(path), "-p", pipeline, "--mode", "plain", "--repro", "bug.py"]
    return join(words)


def _write_if_verified(
    source: Path, result: OptimizeResult, target: Path | None, *, trust: bool
) -> ExitCode:
    """Write the result unless its verification failed, and return the exit code."""
    from scanopt_cli.verification.result import Verdict

    verification = result.verification
    if verification is not None and not verification.ok:
        kept = f"; {target} is not written" if target is not None else ""
        if verification.verdict is not Verdict.DIFFERS:
            outcome = "could not be verified"
        elif all(item.rewrite is not None for item in verification.differences):
            outcome = "makes PyTensor's rewrites fail, and the original does not"
        else:
            outcome = "differs from the original"
        tell(f"the result {outcome}{kept}")
        if verification.verdict is Verdict.DIFFERS:
            mode = next((item.mode for item in verification.differences if item.mode), "plain")
            words = ["scanopt", "bisect", str(source), "-p", result.pipeline, "--mode", mode]
            tell(f"which rewrite it is: {join(words)}")
        return code_of(verification.verdict)
    if target is not None:
        write(result.graph, target, trust=trust)
    return ExitCode.CLEAN
