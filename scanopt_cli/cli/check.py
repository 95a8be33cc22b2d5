"""``scanopt check``: what is wrong or wasteful in the loops of graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.completion import complete_codes
from scanopt_cli.cli.console import out, plug_in_warnings
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.options import (
    AllowPackages,
    ClusterAddress,
    FilesFrom,
    Force,
    Format,
    GraphFiles,
    HtmlFile,
    Jobs,
    OutputFile,
    SchedulerFile,
    Trust,
    require_use_of_force,
)
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.results import json_list, print_blocks
from scanopt_cli.cli.session import Session, session
from scanopt_cli.cli.targets import targets
from scanopt_cli.cli.where import where_to_work
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import Blob
from scanopt_cli.text import comma_separated

if TYPE_CHECKING:
    from scanopt_cli.ir.graph import Graph
    from scanopt_cli.page.contents.parts import Part
    from scanopt_cli.reports.as_json import JsonList
    from scanopt_cli.reports.check_report import Mending
    from scanopt_cli.reports.check_totals import Tally
    from scanopt_cli.rules.graph_checking import Baseline, CheckResult


class CheckFormat(StrEnum):
    """How findings are printed."""

    RICH = "rich"
    CONCISE = "concise"
    JSON = "json"
    JSONL = "jsonl"
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
    graphs: GraphFiles = None,
    files_from: FilesFrom = None,
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
    jobs: Jobs = None,
    cluster: ClusterAddress = None,
    scheduler_file: SchedulerFile = None,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Report what is wrong or wasteful in loops: where, at what cost, and what mends it.

    Exits with 1 if anything is found, with --fix if anything is left. The table
    tool.scanopt.check of pyproject.toml may hold select, ignore, per-file-ignores and baseline;
    options win.
    """
    from scanopt_cli.gates.known_findings import read_baseline
    from scanopt_cli.reports.check_totals import total
    from scanopt_cli.rules.settings import settings_from_pyproject

    if fix and output is None and not diff:
        raise ScanoptError("needs a place", where="--fix", hint="give -o OUT, or --diff")
    if output is not None and not (fix or diff):
        raise ScanoptError("is for --fix", where="-o", hint="give both, or neither")
    as_blocks = output_format in (CheckFormat.RICH, CheckFormat.MARKDOWN)
    if statistics and not as_blocks:
        raise ScanoptError("is for rich and markdown", where="--statistics", hint="leave it out")
    json = json_list(output_format, "check")
    if diff and not (as_blocks or json is not None):
        hint = "give one of these by --format"
        raise ScanoptError("is for rich, markdown, json and jsonl", where="--diff", hint=hint)
    if diff and statistics:
        raise ScanoptError("is not for --statistics", where="--diff", hint="leave one out")
    require_use_of_force(output, force=force)
    settings = settings_from_pyproject(Path.cwd())
    chosen = comma_separated(select) or settings.select
    left_out = comma_separated(ignore) or settings.ignore
    known = read_baseline(baseline or settings.baseline)
    files = graph_files(graphs, files_from)
    places = {} if output is None else targets(list(files), output, force=force)
    require_page(html, files, [("-o", place) for place in places.values()])

    def checking(path: Path) -> _Checking:
        return _Checking(
            select=tuple(chosen),
            ignore=(*left_out, *settings.ignored_in(path)),
            baseline=known,
            mends=fix or diff,
            shows_diff=diff,
            unsafe=unsafe_fixes,
            place=places.get(path),
            draws=html is not None,
            keeps_result=output_format is CheckFormat.SARIF,
            statistics=statistics,
            verbose=verbose,
            output_format=output_format,
            json=json,
            trust=trust,
            allow_packages=tuple(allow_package or ()),
        )

    def require_rules() -> None:
        from scanopt_cli.rules.rule_registry import selected

        with plug_in_warnings():
            selected(chosen, left_out)

    summed = _Summed()
    where = where_to_work(jobs, cluster, scheduler_file)
    batch = Batch(files, where, json)
    batch.run(checking, summed.take, require_rules)
    _print_end(summed, batch, output_format, statistics=statistics)
    if html is not None:
        write_page(html, summed.parts, batch.failures, verdict=total(summed.tally))
    is_found = summed.tally.findings > 0
    is_found |= bool(summed.tally.mended) and not summed.tally.is_written
    return batch.finish(finding(is_found and not exit_zero))


@dataclass(frozen=True, slots=True)
class _Checked:
    """What is summed up of a graph; of what takes memory, what is needed in the end alone."""

    tally: Tally
    result: CheckResult | None = None
    part: Part | None = None


@dataclass
class _Summed:
    """What is summed up of all graphs."""

    tally: Tally = field(default_factory=lambda: _no_graph())
    results: dict[Path, CheckResult] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)

    def take(self, path: Path, checked: _Checked) -> None:
        """Add a graph."""
        self.tally += checked.tally
        if checked.result is not None:
            self.results[path] = checked.result
        if checked.part is not None:
            self.parts.append(checked.part)


def _no_graph() -> Tally:
    from scanopt_cli.reports.check_totals import Tally

    return Tally()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checking(Task[_Checked]):
    """What is done with a graph."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]
    baseline: Baseline
    mends: bool
    shows_diff: bool
    unsafe: bool
    place: Path | None
    draws: bool
    keeps_result: bool
    statistics: bool
    verbose: bool
    output_format: CheckFormat
    json: JsonList | None
    trust: bool
    allow_packages: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        """Whether the same file leads to the same; what a page is made of is not kept."""
        return self.permissions().is_strict and not self.draws

    def work(self, path: Path, files: Sequence[Blob], _title: str, /) -> Done[_Checked]:
        """Check a graph, mend it if that is wanted, and print what is found."""
        from scanopt_cli.diff.comparing import diff
        from scanopt_cli.reports.check_report import Mending, as_json
        from scanopt_cli.reports.check_totals import Tally
        from scanopt_cli.rules.graph_checking import check as check_graph
        from scanopt_cli.rules.mending import mend
        from scanopt_cli.serialization.saving import file_of

        how: Any = {"select": self.select, "ignore": self.ignore, "baseline": self.baseline}
        mending, new = Mending(self.unsafe), None
        written: dict[Path, bytes] = {}
        with session(*files, trust=self.trust, allow_packages=self.allow_packages) as work:
            (graph,) = map(work.load, files)
            if self.mends:
                done = mend(graph, unsafe=self.unsafe, suspects=self.verbose, **how)
                is_mended = done.mended.passes is not None
                difference = diff(graph, done.graph) if self.shows_diff and is_mended else None
                if self.place is not None:
                    written[self.place] = file_of(done.graph, self.place, trust=self.trust)
                result, new = done.left, done.graph if is_mended else None
                mending = Mending(self.unsafe, done.mended, difference, bool(written))
            else:
                result = check_graph(graph, suspects=self.verbose, **how)
            part = self._part(path, result, graph, new, mending)
        self._print(path, result, mending)
        checked = _Checked(
            Tally.of(result, mending),
            result if self.keeps_result else None,
            part,
        )
        entry = None if self.json is None else self.json.entry(as_json(path, result, mending))
        return Done(checked, entry, files=written)

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return Session(self.trust, self.allow_packages)

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        return patience(path, trust=self.trust)

    def _part(
        self, path: Path, result: CheckResult, graph: Graph, new: Graph | None, mending: Mending
    ) -> Part | None:
        if not self.draws:
            return None
        from scanopt_cli.page.contents.check_page import Checked, check_part

        return check_part(Checked(result=result, graph=graph, mended=new), path, mending)

    def _print(self, path: Path, result: CheckResult, mending: Mending) -> None:
        from scanopt_cli.reports import check_report

        if self.statistics:
            return
        match self.output_format:
            case CheckFormat.JSON | CheckFormat.JSONL | CheckFormat.SARIF:
                pass
            case CheckFormat.CONCISE:
                _print_lines(check_report.concise(path, result))
            case CheckFormat.GITHUB:
                _print_lines(check_report.workflow_commands(path, result))
            case _:
                report = check_report.check_report(path, result, mending, verbose=self.verbose)
                print_blocks(Format(self.output_format.value), report)


def _print_end(
    summed: _Summed, batch: Batch, output_format: CheckFormat, *, statistics: bool
) -> None:
    """Print what closes the report."""
    from scanopt_cli.reports import check_totals
    from scanopt_cli.reports.document import Paragraph

    if output_format is CheckFormat.SARIF:
        from scanopt_cli.reports.sarif import sarif

        out().out(sarif(summed.results, list(batch.failures.values())))
    elif batch.json is not None or not summed.tally.graphs:
        return  # each file has an entry, or an error of its own
    elif statistics:
        print_blocks(Format(output_format.value), check_totals.statistics(summed.tally))
    elif output_format is CheckFormat.CONCISE:
        _print_lines(check_totals.closing(summed.tally))
    elif output_format is CheckFormat.GITHUB:
        _print_lines([check_totals.total(summed.tally)])
    else:
        closing = map(Paragraph, check_totals.closing(summed.tally))
        print_blocks(Format(output_format.value), closing)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        out().out(line)
