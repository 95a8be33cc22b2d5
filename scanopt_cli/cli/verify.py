"""``scanopt verify``: do two graphs compute the same?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scanopt_cli.cli.console import status
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


def verify(
    a: Annotated[Path, typer.Argument(metavar="A", help="A pickled graph: the reference.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="A pickled graph: the one to check.")],
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

    Both are evaluated as they are; then the second is compiled as well, see --mode.
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
    return code_of(found.verdict)
