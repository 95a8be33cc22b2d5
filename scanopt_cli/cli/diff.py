"""``scanopt diff``: what differs between two graphs, for people and for CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scanopt_cli.cli.console import out, tell
from scanopt_cli.cli.diff_against import pairs_at_revision
from scanopt_cli.cli.diff_files import diff_files
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.graph_pairs import FilePair, are_directories, pairs_of_directories
from scanopt_cli.cli.options import (
    AllowPackages,
    ClusterAddress,
    Format,
    GateFormat,
    HtmlFile,
    Jobs,
    SchedulerFile,
    Trust,
)
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.results import add_to_step_summary, print_blocks, print_json
from scanopt_cli.cli.session import session
from scanopt_cli.cli.where import Cluster, where_to_work
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scanopt_cli.diff.budgets import Budget, Violation
    from scanopt_cli.diff.changes import GraphDiff


def diff(
    graphs: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B|PATH...",
            help="Two graph files, before and after, or two directories of them; with --against, "
            "graph files and directories.",
            readable=False,
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(
            metavar="REV",
            help="Compare each graph with what it is in git at this revision: a branch, a tag or "
            "a commit.",
        ),
    ] = None,
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
    output_format: Annotated[GateFormat, typer.Option("--format", help="How to print it.")] = (
        GateFormat.RICH
    ),
    jobs: Jobs = None,
    cluster: ClusterAddress = None,
    scheduler_file: SchedulerFile = None,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Show what was added, removed, changed and rewired from A to B, loop bodies included.

    With --against, A is what git has, and B the file. Of directories, graphs of one name are
    compared. A graph that is new or gone is a difference.
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
    where = where_to_work(jobs, cluster, scheduler_file)
    pairs: list[FilePair[Any]]
    name = against
    if against is not None:
        pairs = pairs_at_revision(graphs, against)
    elif len(graphs) != 2:
        raise ScanoptError(
            f"takes two graphs, not {len(graphs)}",
            where="diff",
            hint="give A and B, or --against REV to compare files with what they were in git",
        )
    elif are_directories(*graphs):
        pairs, name = pairs_of_directories(*graphs), str(graphs[0])
    if name is not None:
        return diff_files(
            pairs,
            name,
            limits,
            only_budget=only_budget,
            stat=stat,
            lines=lines,
            names=names,
            html=html,
            output_format=output_format,
            where=where,
            trust=trust,
            allow_package=allow_package,
        )
    if isinstance(where, Cluster):
        hint = "give --against or two directories"
        raise ScanoptError("is for several graphs", where=where.option.split()[0], hint=hint)
    a, b = graphs
    require_page(html, graphs)
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
    output_format: GateFormat,
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
        case GateFormat.JSON:
            told = {"headline": headline(found)} | plain(found)
            print_json("diff", told | {"violations": plain(violations)})
        case GateFormat.GITHUB:
            out().out(diff_github.workflow_commands(found, violations, file=str(file)))
            add_to_step_summary(diff_report(found, violations, stands_alone=True))
        case _:
            stands_alone = output_format is GateFormat.MARKDOWN
            report = diff_report(
                found,
                violations,
                stat=stat,
                lines=0 if stands_alone else lines,
                stands_alone=stands_alone,
            )
            print_blocks(Format(output_format.value), report)
