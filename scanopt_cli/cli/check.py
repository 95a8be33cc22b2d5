"""``scanopt check``: what is wrong or wasteful in the loops of graphs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scanopt_cli.cli.batch import Batch, Failure
from scanopt_cli.cli.completion import complete_codes
from scanopt_cli.cli.console import out, plug_in_warnings
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.options import (
    AllowPackages,
    Force,
    Format,
    HtmlFile,
    OutputFile,
    Trust,
    require_use_of_force,
)
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.results import print_blocks, print_json
from scanopt_cli.cli.session import session
from scanopt_cli.cli.targets import targets, write
from scanopt_cli.errors import ScanoptError
from scanopt_cli.text import comma_separated

if TYPE_CHECKING:
    from scanopt_cli.diff.changes import GraphDiff
    from scanopt_cli.page.contents.parts import Part
    from scanopt_cli.reports.check_report import Mending
    from scanopt_cli.rules.graph_checking import CheckResult


class CheckFormat(StrEnum):
    """How findings are printed."""

    RICH = "rich"
    CONCISE = "concise"
    JSON = "json"
    GITHUB = "github"
    MARKDOWN = "markdown"
    SARIF = "sarif"


Codes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CODES",
        help="Codes of rules, or what they begin with: P001,R.",
        autocompletion=complete_codes,
    ),
]


def check(
    graphs: Annotated[
        list[Path],
        typer.Argument(
            metavar="GRAPH|DIR...", help="Graph files, or directories of them.", readable=False
        ),
    ],
    select: Codes = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODES",
            help="Rules that are left out; as for --select.",
            autocompletion=complete_codes,
        ),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Write the graphs to -o, mended where that is safe.")
    ] = False,
    unsafe_fixes: Annotated[
        bool,
        typer.Option(
            "--unsafe-fixes", help="Let fixes count that may change values; --fix applies them."
        ),
    ] = False,
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Show what --fix changes; it is written with -o alone."),
    ] = False,
    output: OutputFile = None,
    force: Force = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Only how many findings each rule has.")
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A lock file, as `scanopt lock` writes it: its findings are known, and left out.",
        ),
    ] = None,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit with 0 in spite of findings.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Show findings of copies of a loop, and what is not proved.",
        ),
    ] = False,
    html: HtmlFile = None,
    output_format: Annotated[CheckFormat, typer.Option("--format", help="How to print it.")] = (
        CheckFormat.RICH
    ),
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Report what is wrong or wasteful in loops: where, at what cost, and what mends it.

    Exits with 1 if anything is found, with --fix if anything is left. The table
    tool.scanopt.check of pyproject.toml may hold select, ignore, per-file-ignores and baseline;
    options win.
    """
    from scanopt_cli.diff.comparing import diff as diff_graphs
    from scanopt_cli.gates.known_findings import read_baseline
    from scanopt_cli.reports import check_report
    from scanopt_cli.reports.check_report import Mending
    from scanopt_cli.rules.graph_checking import check as check_graph
    from scanopt_cli.rules.mending import Mended, mend
    from scanopt_cli.rules.rule_registry import selected
    from scanopt_cli.rules.settings import settings_from_pyproject

    if fix and output is None and not diff:
        raise ScanoptError("needs a place", where="--fix", hint="give -o OUT, or --diff")
    if output is not None and not (fix or diff):
        raise ScanoptError("is for --fix", where="-o", hint="give both, or neither")
    as_blocks = output_format in (CheckFormat.RICH, CheckFormat.MARKDOWN)
    if statistics and not as_blocks:
        raise ScanoptError("is for rich and markdown", where="--statistics", hint="leave it out")
    if diff and not (as_blocks or output_format is CheckFormat.JSON):
        hint = "give one of these by --format"
        raise ScanoptError("is for rich, markdown and json", where="--diff", hint=hint)
    if diff and statistics:
        raise ScanoptError("is not for --statistics", where="--diff", hint="leave one out")
    require_use_of_force(output, force=force)
    settings = settings_from_pyproject(Path.cwd())
    chosen = comma_separated(select) or settings.select
    left_out = comma_separated(ignore) or settings.ignore
    with plug_in_warnings():
        selected(chosen, left_out)
    known = read_baseline(baseline or settings.baseline)
    files = graph_files(graphs)
    places = {} if output is None else targets(list(files), output, force=force)
    require_page(html, files, [("-o", place) for place in places.values()])
    batch = Batch(list(files))
    parts: list[Part] = []
    results: dict[Path, CheckResult] = {}
    mended: dict[Path, Mended] = {}
    diffs: dict[Path, GraphDiff] = {}
    for path, problem in files.items():
        with (
            batch.attempt(path),
            session(path, trust=trust, allow_packages=allow_package) as work,
        ):
            if problem is not None:
                raise problem
            graph = work.load(path)
            ignored = (*left_out, *settings.ignored_in(path))
            how: Any = {"select": chosen, "ignore": ignored, "baseline": known}
            if fix or diff:
                done = mend(graph, unsafe=unsafe_fixes, suspects=verbose, **how)
                if diff and done.mended.passes is not None:
                    diffs[path] = diff_graphs(graph, done.graph)
                if path in places:
                    write(done.graph, places[path], trust=trust)
                mended[path], results[path] = done.mended, done.left
                new = done.graph if done.mended.passes is not None else None
            else:
                results[path] = check_graph(graph, suspects=verbose, **how)
                new = None
            if html is not None:
                from scanopt_cli.page.contents.check_page import Checked, check_part

                own = Mending(unsafe_fixes, mended, diffs, are_written=bool(places))
                shown = Checked(result=results[path], graph=graph, mended=new)
                parts.append(check_part(shown, path, own))
            batch.results.append(path)
    mending = Mending(unsafe_fixes, mended, diffs, are_written=bool(places))
    _print(results, batch, output_format, mending, statistics=statistics, verbose=verbose)
    if html is not None:
        write_page(html, parts, batch, verdict=check_report.total(results, mending))
    is_found = any(result.findings for result in results.values())
    is_found |= bool(mending.count) and not mending.are_written
    return batch.finish(finding(is_found and not exit_zero))


def _print(
    results: Mapping[Path, CheckResult],
    batch: Batch,
    output_format: CheckFormat,
    mending: Mending,
    *,
    statistics: bool,
    verbose: bool,
) -> None:
    from scanopt_cli.reports import check_report
    from scanopt_cli.reports.sarif import sarif

    if not results and output_format not in (CheckFormat.JSON, CheckFormat.SARIF):
        return  # each file has an error of its own
    if statistics:
        print_blocks(Format(output_format.value), check_report.statistics(results, mending))
        return
    match output_format:
        case CheckFormat.JSON:
            print_json("check", {"graphs": check_report.as_json(batch.results, results, mending)})
        case CheckFormat.SARIF:
            errors = [entry.error for entry in batch.results if isinstance(entry, Failure)]
            out().out(sarif(results, errors))
        case CheckFormat.CONCISE:
            for line in check_report.concise(results, mending):
                out().out(line)
        case CheckFormat.GITHUB:
            for line in check_report.workflow_commands(results, mending):
                out().out(line)
        case _:
            report = check_report.check_report(results, mending, verbose=verbose)
            print_blocks(Format(output_format.value), report)
