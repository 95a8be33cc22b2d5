"""``scanopt diff``: what differs between two graphs, for people and for CI."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.console import out, tell
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.options import AllowPackages, Format, HtmlFile, Trust
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.results import print_blocks, print_json
from scanopt_cli.cli.session import session
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scanopt_cli.diff.budgets import Budget, Violation
    from scanopt_cli.diff.changes import GraphDiff


class DiffFormat(StrEnum):
    """How a difference is printed."""

    RICH = "rich"
    JSON = "json"
    GITHUB = "github"
    MARKDOWN = "markdown"


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A graph file: before.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="A graph file: after.")],
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="COUNTS",
            help="Upper limits on the counts of B, such as 'scans=2,mit_mot=0,outer=30'; by "
            "default those of \\[tool.scanopt.budget] in pyproject.toml.",
        ),
    ] = None,
    only_budget: Annotated[
        bool,
        typer.Option("--only-budget", help="Exit with 1 for a broken budget, not for differences."),
    ] = False,
    stat: Annotated[
        bool,
        typer.Option(
            "--stat",
            help="Only counts: a line for each loop, the totals, and the counts of B that a "
            "budget limits.",
        ),
    ] = False,
    lines: Annotated[
        int,
        typer.Option(
            min=0,
            help="At a terminal, tell what matters most in about as many lines; 0 for all changes, "
            "with all that is known of them.",
        ),
    ] = 40,
    names: Annotated[
        bool, typer.Option("--names", help="Report renamed inputs and loops as differences too.")
    ] = False,
    html: HtmlFile = None,
    output_format: Annotated[DiffFormat, typer.Option("--format", help="How to print it.")] = (
        DiffFormat.RICH
    ),
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Show what was added, removed, changed and rewired from A to B, loop bodies included.

    Exits with 0 if the graphs are the same, with 1 if they differ or B is over a budget; see
    --only-budget.
    """
    from scanopt_cli.diff.budgets import budget_from_pyproject, check, parse_budget
    from scanopt_cli.diff.comparing import diff as diff_graphs

    limits: Budget | None = (
        budget_from_pyproject(Path.cwd()) if budget is None else parse_budget(budget)
    )
    if only_budget and limits is None:
        raise ScanoptError("there is no budget", where="--only-budget", hint="give --budget COUNTS")
    require_page(html, [a, b])
    with session(a, b, trust=trust, allow_packages=allow_package) as work:
        before, after = map(work.load, (a, b))
        found = diff_graphs(before, after, names=names)
        violations = check(limits, after) if limits is not None else ()
        _print(found, violations, b, output_format, stat=stat, lines=lines)
        if html is not None:
            from scanopt_cli.page.contents.diff_page import Compared, diff_part

            compared = Compared(found=found, violations=violations, graphs=(before, after))
            write_page(html, [diff_part(compared, f"{a} → {b}")])
    return finding(bool(violations) or not (found.same or only_budget))


def _print(
    found: GraphDiff,
    violations: Sequence[Violation],
    file: Path,
    output_format: DiffFormat,
    *,
    stat: bool,
    lines: int,
) -> None:
    from scanopt_cli.reports import diff_github
    from scanopt_cli.reports.as_json import plain
    from scanopt_cli.reports.diff_report import diff_report
    from scanopt_cli.reports.loop_text import headline

    for note in found.notes:
        tell(f"note: {note}")
    match output_format:
        case DiffFormat.JSON:
            told = {"headline": headline(found)} | plain(found)
            print_json("diff", told | {"violations": plain(violations)})
        case DiffFormat.GITHUB:
            out().out(diff_github.workflow_commands(found, violations, file=str(file)))
            summary = os.environ.get("GITHUB_STEP_SUMMARY")
            if summary:
                with Path(summary).open("a", encoding="utf-8") as step_summary:
                    step_summary.write(diff_github.step_summary(found, violations))
        case _:
            stands_alone = output_format is DiffFormat.MARKDOWN
            report = diff_report(
                found,
                violations,
                stat=stat,
                lines=0 if stands_alone else lines,
                stands_alone=stands_alone,
            )
            print_blocks(Format(output_format.value), report)
