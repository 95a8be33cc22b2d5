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
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.options import (
    AllowPackages,
    Format,
    Modes,
    OutputFormat,
    Timeout,
    Trust,
)
from scanopt_cli.cli.results import print_result
from scanopt_cli.cli.session import Session, session
from scanopt_cli.serialization.files import Blob, read_blob

if TYPE_CHECKING:
    from scanopt_cli.verification.result import Verification


def verify(
    a: Annotated[Path, typer.Argument(metavar="A", help="A graph file: the reference.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="A graph file: the one to check.")],
    runs: Annotated[
        int, typer.Option(min=1, help="How many random runs, beside recorded ones.")
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    mode: Modes = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="It is a difference if only A raises.")
    ] = False,
    timeout: Timeout = 300.0,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Evaluate both graphs on the same inputs, in a child process, and compare the values.

    Both are evaluated as they are; then the second is compiled as well, see --mode. If they differ,
    the command that finds the step, or the rewrite, is told.
    """
    task = _Verifying(
        a=a,
        runs=runs,
        seed=seed,
        modes=tuple(mode or ()),
        strict=strict,
        timeout=timeout,
        output_format=output_format,
        trust=trust,
        allow_packages=tuple(allow_package or ()),
    )
    batch = Batch({b: None}, jobs=0)
    batch.run(lambda _b: task)
    return batch.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verifying(Task[None]):
    """What is done with a graph: it is compared with ``a``."""

    a: Path
    runs: int
    seed: int
    modes: tuple[str, ...]
    strict: bool
    timeout: float
    output_format: Format
    trust: bool
    allow_packages: tuple[str, ...]

    def read(self, path: Path) -> Sequence[Blob]:
        """Return the contents of both files, with recorded values."""
        return [read_blob(each, recorded=True) for each in (self.a, path)]

    def work(self, path: Path, files: Sequence[Blob], _title: str, /) -> Done[None]:
        """Verify both, and print what was found."""
        from scanopt_cli.reports.verify_report import verify_report
        from scanopt_cli.verification.modes import DEFAULT
        from scanopt_cli.verification.result import Verdict
        from scanopt_cli.verification.verifying import verify as verify_graphs

        with session(*files, trust=self.trust, allow_packages=self.allow_packages) as work:
            graphs = [*map(work.load, files)]
            with status(str(path), "verifying") as show_progress:
                found = verify_graphs(
                    *graphs,
                    runs=self.runs,
                    seed=self.seed,
                    modes=self.modes or DEFAULT,
                    timeout=self.timeout,
                    strict=self.strict,
                    progress=show_progress,
                )
        print_result(self.output_format, "verify", found, verify_report(found))
        command = _finding_the_place(self.a, path, found, self.seed)
        if command is not None:
            tell(f"where they begin to differ: {join(command)}")
        is_kept = found.verdict is not Verdict.COULD_NOT_RUN
        return Done(None, code=code_of(found.verdict), is_kept=is_kept)

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
