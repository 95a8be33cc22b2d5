"""``scanopt verify``: do two graphs compute the same?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.console import status, tell
from scanopt_cli.cli.exits import ExitCode, code_of
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.graph_pairs import (
    FileInDirectory,
    FilePair,
    are_directories,
    pairs_of_directories,
)
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.options import (
    AllowPackages,
    ClusterAddress,
    Format,
    Jobs,
    ListFormat,
    ListOutputFormat,
    Modes,
    SchedulerFile,
    Timeout,
    Trust,
)
from scanopt_cli.cli.results import json_of, print_blocks, print_result
from scanopt_cli.cli.session import Session, session
from scanopt_cli.cli.where import where_to_work
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import Blob, read_blob
from scanopt_cli.text import plural

if TYPE_CHECKING:
    from scanopt_cli.reports.as_json import JsonList
    from scanopt_cli.reports.document import Paragraph
    from scanopt_cli.verification.result import Verdict, Verification


def verify(
    a: Annotated[
        Path,
        typer.Argument(metavar="A", help="A graph file: the reference; or a directory of them."),
    ],
    b: Annotated[
        Path,
        typer.Argument(
            metavar="B",
            help="A graph file: the one to check; or a directory of those that have the names of "
            "A's.",
        ),
    ],
    runs: Annotated[
        int, typer.Option(min=1, help="How many random runs, beside recorded ones.")
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    mode: Modes = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="It is a difference if only A raises.")
    ] = False,
    timeout: Timeout = 300.0,
    output_format: ListOutputFormat = ListFormat.RICH,
    jobs: Jobs = None,
    cluster: ClusterAddress = None,
    scheduler_file: SchedulerFile = None,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Evaluate both graphs on the same inputs, in a child process, and compare the values.

    Both are evaluated as they are; then the second is compiled as well, see --mode. If they differ,
    the command that finds the step, or the rewrite, is told.
    """
    is_one = not are_directories(a, b)
    one = FilePair(b, FileInDirectory(a), exists=True)
    pairs = [one] if is_one else pairs_of_directories(a, b)
    references = {pair.path: pair.earlier.path for pair in pairs if pair.earlier is not None}
    json = json_of(output_format, "verify", is_one=is_one)

    def verifying(path: Path) -> _Verifying:
        return _Verifying(
            a=references[path],
            is_one=is_one,
            runs=runs,
            seed=seed,
            modes=tuple(mode or ()),
            strict=strict,
            timeout=timeout,
            output_format=output_format,
            json=json,
            trust=trust,
            allow_packages=tuple(allow_package or ()),
        )

    verdicts: list[Verdict] = []
    where = where_to_work(jobs, cluster, scheduler_file)
    batch = Batch({pair.path: _problem(pair, a, b) for pair in pairs}, where, json)
    batch.run(verifying, lambda _path, verdict: verdicts.append(verdict))
    if json is None and verdicts and not is_one:
        print_blocks(Format(output_format.value), [_total(verdicts)])
    return batch.finish()


def _problem(pair: FilePair[FileInDirectory], a: Path, b: Path) -> ScanoptError | None:
    """Return why a pair cannot be verified, if it cannot."""
    if pair.problem is None and (pair.earlier is None or not pair.exists):
        lacking = a if pair.earlier is None else b
        return ScanoptError(f"is not in {lacking}", where=str(pair.path), hint="give it in both")
    return pair.problem


def _total(verdicts: Sequence[Verdict]) -> Paragraph:
    """Return how many graphs there are of each verdict: ``3 graphs: 2 identical, 1 different``."""
    from scanopt_cli.reports.document import Paragraph
    from scanopt_cli.reports.verify_report import counted

    return Paragraph(f"{plural(len(verdicts), 'graph')}: {counted(verdicts)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verifying(Task["Verdict"]):
    """What is done with a graph: it is compared with ``a``."""

    a: Path
    is_one: bool
    runs: int
    seed: int
    modes: tuple[str, ...]
    strict: bool
    timeout: float
    output_format: ListFormat
    json: JsonList | None
    trust: bool
    allow_packages: tuple[str, ...]

    def read(self, path: Path) -> Sequence[Blob]:
        """Return the contents of both files, with recorded values."""
        return [read_blob(each, recorded=True) for each in (self.a, path)]

    def work(self, path: Path, files: Sequence[Blob], title: str, /) -> Done[Verdict]:
        """Verify both, print what was found, and return the verdict."""
        from scanopt_cli.reports.as_json import plain
        from scanopt_cli.reports.verify_report import verify_report
        from scanopt_cli.verification.modes import DEFAULT
        from scanopt_cli.verification.result import Verdict
        from scanopt_cli.verification.verifying import verify as verify_graphs

        with session(*files, trust=self.trust, allow_packages=self.allow_packages) as work:
            graphs = [*map(work.load, files)]
            with status(title, "verifying") as show_progress:
                found = verify_graphs(
                    *graphs,
                    runs=self.runs,
                    seed=self.seed,
                    modes=self.modes or DEFAULT,
                    timeout=self.timeout,
                    strict=self.strict,
                    progress=show_progress,
                )
        if self.json is None:
            report = verify_report(found, title="" if self.is_one else f"{path}: ")
            print_result(Format(self.output_format.value), "verify", found, report)
        command = _finding_the_place(self.a, path, found, self.seed)
        if command is not None:
            tell(f"where they begin to differ: {join(command)}")
        told = {"source": str(path), "reference": str(self.a), **plain(found)}
        return Done(
            found.verdict,
            None if self.json is None else self.json.entry(told),
            code_of(found.verdict),
            is_kept=found.verdict is not Verdict.COULD_NOT_RUN,
        )

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return Session(self.trust, self.allow_packages)

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        return patience(path, trust=self.trust, more=self.timeout)


def _finding_the_place(a: Path, b: Path, found: Verification, seed: int) -> list[str] | None:
    """Return the command that finds the place at which values differ, if there is one.

    Loops that differ as they are in the first run, whose arguments `trace` takes, begin to differ
    in a step of these; what differs compiled, after a rewrite of PyTensor's.
    """
    from scanopt_cli.verification.result import DifferenceKind

    values = [item for item in found.differences if item.kind is not DifferenceKind.REWRITE_FAILS]
    plain = [item for item in values if item.mode is None]
    if any(item.run == 0 and item.loops for item in plain):
        seeded = ["--seed", str(seed)] * bool(seed)
        return ["scanopt", "trace", "--between", str(a), str(b), *seeded]
    modes = [item.mode for item in values if item.mode is not None]
    if modes and not plain:
        return ["scanopt", "bisect", str(b), "-p", "none", "--mode", modes[0]]
    return None
