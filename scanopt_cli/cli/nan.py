"""``scanopt nan``: the first NaN or infinity that a graph and its loops compute."""

from __future__ import annotations

from typing import Annotated

import typer

from scanopt_cli.cli.console import status
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.options import (
    AllowPackages,
    ArgumentsFile,
    Format,
    GraphFile,
    OutputFormat,
    Seed,
    Timeout,
    Trust,
)
from scanopt_cli.cli.results import print_result
from scanopt_cli.cli.session import session


def nan(
    graph: GraphFile,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="inf", help="Infinities are as good as numbers; look for NaNs only."),
    ] = None,
    masked: Annotated[
        bool,
        typer.Option(
            "--masked", help="Show the first that any node computes, even if no slot holds it."
        ),
    ] = False,
    arguments: ArgumentsFile = None,
    seed: Seed = 0,
    timeout: Timeout = 300.0,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Show the first NaN or infinity that stays: its step, node, line, and what the node reads.

    The graph and its loops, forward and backward ones, run in Python in a child process. Exits with
    1 if a slot of a loop or an output holds one, or with --masked if there is any.
    """
    from scanopt_cli.reports.nan_report import nan_report
    from scanopt_cli.tracing.finding_nan import allows_inf, first_nan

    allows_inf(allow or ())
    with session(graph, trust=trust, allow_packages=allow_package) as work:
        loaded = work.load(graph, recorded=arguments is None)
        with status(str(graph), "tracing") as show_progress:
            found = first_nan(
                loaded,
                arguments,
                allow=allow or (),
                masked=masked,
                seed=seed,
                timeout=timeout,
                progress=show_progress,
            )
    print_result(output_format, "nan", found, nan_report(found))
    return finding(found.is_bad)
