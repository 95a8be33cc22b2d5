"""``scanopt verify``: do two graphs compute the same?"""

from __future__ import annotations

from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.console import status, tell
from scanopt_cli.cli.exits import ExitCode, code_of
from scanopt_cli.cli.options import (
    AllowPackages,
    Format,
    Modes,
    OutputFormat,
    Timeout,
    Trust,
)
from scanopt_cli.cli.results import print_result
from scanopt_cli.cli.session import session

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
    from scanopt_cli.reports.verify_report import verify_report
    from scanopt_cli.verification.modes import DEFAULT
    from scanopt_cli.verification.verifying import verify as verify_graphs

    with session(a, b, trust=trust, allow_packages=allow_package) as work:
        graphs = [work.load(path, recorded=True) for path in (a, b)]
        with status(str(b), "verifying") as show_progress:
            found = verify_graphs(
                *graphs,
                runs=runs,
                seed=seed,
                modes=mode or DEFAULT,
                timeout=timeout,
                strict=strict,
                progress=show_progress,
            )
    print_result(output_format, "verify", found, verify_report(found))
    command = _finding_the_place(a, b, found, seed)
    if command is not None:
        tell(f"where they begin to differ: {join(command)}")
    return code_of(found.verdict)


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
