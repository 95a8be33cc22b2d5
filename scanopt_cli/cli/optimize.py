"""``scanopt optimize``: run passes on graphs and show what they did."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.batch import Batch, load_graph
from scanopt_cli.cli.console import out, plug_in_warnings, status, tell
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.limits import limited
from scanopt_cli.cli.options import (
    AllowPackages,
    Force,
    Format,
    GraphFiles,
    Modes,
    OutputFile,
    OutputFormat,
    Pipeline,
    Trust,
    require_use_of_force,
)
from scanopt_cli.cli.results import print_aside, print_blocks, print_json
from scanopt_cli.cli.targets import targets, write
from scanopt_cli.errors import ScanoptError
from scanopt_cli.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scanopt_cli.pipeline.optimizing import OptimizeResult
    from scanopt_cli.reports.document import Block
    from scanopt_cli.rules.graph_checking import CheckResult


class DiffKind(StrEnum):
    """How the changes of a pass are shown."""

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
            help="Show each pass's change at a terminal: dprint trees, matched graphs, or nothing."
        ),
    ] = DiffKind.TREE,
    print_changed: Annotated[
        bool,
        typer.Option(
            "--print-changed", help="Show each diff as the pass has run, on stderr, not at the end."
        ),
    ] = False,
    lines: Annotated[
        int, typer.Option(min=0, help="Longest diff of a pass, in lines; 0 for no limit.")
    ] = 60,
    depth: Annotated[
        int | None, typer.Option(min=1, help="How deep the trees are printed.")
    ] = None,
    time_passes: Annotated[
        bool, typer.Option("--time-passes", help="Show the wall time of each pass.")
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
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks on stderr.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what passes found out as well.")
    ] = False,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Run passes on graphs; show the counts before and after, the changes and the remarks."""
    from scanopt_cli.pipeline.grammar import parse
    from scanopt_cli.pipeline.optimizing import optimize as optimize_graph
    from scanopt_cli.reports import check_report
    from scanopt_cli.reports.as_json import plain
    from scanopt_cli.reports.changes_report import showing_changes
    from scanopt_cli.reports.document import Paragraph
    from scanopt_cli.reports.optimize_report import timings
    from scanopt_cli.reports.remark_text import failures, text_of
    from scanopt_cli.rules.gate import PassesGate
    from scanopt_cli.verification.modes import DEFAULT

    if mode and not verify:
        raise ScanoptError("is for --verify", where="--mode", hint="give both, or neither")
    with plug_in_warnings():
        sequence = parse(passes)
        gate = PassesGate.of(sequence) if check else None
    graphs = list(dict.fromkeys(graphs))
    require_use_of_force(output, force=force)
    places = {} if output is None else targets(graphs, output, force=force)
    batch = Batch(graphs)
    codes = [ExitCode.CLEAN]
    found: dict[Path, CheckResult] = {}
    wants_diff = output_format is Format.RICH and diff is not DiffKind.NONE
    for place, path in enumerate(graphs, 1):
        title = f"{path} ({place} of {len(graphs)})" if len(graphs) > 1 else str(path)
        with batch.attempt(path), limited(path, trust=trust, only_read=False):
            with status(title, "optimizing") as show_progress:
                graph = load_graph(path, trust=trust, allow_packages=allow_package, recorded=verify)
                changes: list[Block] = []
                watch = showing_changes(
                    print_aside if print_changed else changes.extend,
                    graph,
                    structural=diff is DiffKind.STRUCTURAL,
                    depth=depth,
                    lines=lines,
                )
                result = optimize_graph(
                    graph,
                    passes,
                    verify=verify,
                    modes=mode or DEFAULT,
                    limit=limit,
                    watch=watch if wants_diff or print_changed else None,
                    progress=show_progress,
                )
            if gate is not None:
                found[path] = gate.check(graph, path)
            if output_format is Format.JSON:
                findings = {"findings": plain(found[path].findings)} if path in found else {}
                batch.results.append({"source": str(path)} | plain(result) | findings)
            else:
                _print(result, graph.source, changes, output_format, quiet=quiet, verbose=verbose)
                if time_passes:
                    print_aside([timings(result.passes)])
            for remark in result.warnings:
                tell(f"warning: {path}: {remark.scan}: {text_of(remark)}")
            for remark in failures(result.passes):
                tell(f"warning: {path}: {text_of(remark)} (pass {remark.pass_name}, {remark.scan})")
            if limit is not None and sum(run.rewrites for run in result.passes) >= limit:
                tell(f"stopped after {plural(limit, 'rewrite')}, as --limit says")
            codes.append(_finish(result, places.get(path), trust=trust))
    if output_format is Format.JSON:
        print_json("optimize", {"graphs": batch.results})
    elif found:
        print_blocks(
            output_format, [*check_report.findings(found), Paragraph(check_report.total(found))]
        )
    codes.append(finding(any(result.findings for result in found.values())))
    return batch.finish(max(codes))


def _print(
    result: OptimizeResult,
    source: str,
    changes: Sequence[Block],
    output_format: Format,
    *,
    quiet: bool,
    verbose: bool,
) -> None:
    """Print the report with the remarks; those for a person go to stderr, unless ``quiet``."""
    from scanopt_cli.reports.document import Heading
    from scanopt_cli.reports.optimize_report import optimize_report, remarks

    report = optimize_report(source, result, changes)
    found = list(remarks(result.passes, verbose=verbose))
    if output_format is Format.MARKDOWN:
        print_blocks(output_format, [*report, *found])
        out().out()  # the next file's heading is apart from the last item
        return
    print_blocks(output_format, report)
    if found and not quiet:
        print_aside([Heading(source, "remarks"), *found])


def _finish(result: OptimizeResult, target: Path | None, *, trust: bool) -> ExitCode:
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
        return ExitCode.FINDING if verification.verdict is Verdict.DIFFERS else ExitCode.FAILED
    if target is not None:
        write(result.graph, target, trust=trust)
    return ExitCode.CLEAN
