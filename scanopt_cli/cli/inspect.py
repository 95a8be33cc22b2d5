"""``scanopt inspect``: the loops of a graph, and the slots of each."""

from __future__ import annotations

from typing import Annotated

import typer

from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import AllowPackages, Format, GraphFile, OutputFormat, Trust
from scanopt_cli.cli.results import print_result
from scanopt_cli.cli.session import session


def inspect(
    graph: GraphFile,
    loop: Annotated[
        str | None,
        typer.Option(
            "--loop",
            metavar="NAME|LINE",
            help="Show the slots of this loop and of those inside: by its name, a path of names as "
            "outer/inner, or the line that wrote it, as 41 or model.py:41.",
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Show N levels of loops; 1 omits those inside."),
    ] = None,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Show the loops: steps, memory, what a step costs; then slots, what feeds and reads them.

    Loops that compute the same in each step are one row. A graph of one or two loops with few slots
    is shown with them; else give --loop.
    """
    from scanopt_cli.analysis.distinct_loops import chosen
    from scanopt_cli.analysis.inspection import inspect_graph
    from scanopt_cli.reports.inspect_report import inspect_report

    with session(graph, trust=trust, allow_packages=allow_package, only_read=True) as work:
        inspection = chosen(inspect_graph(work.load(graph).fgraph), loop, depth)
    details = True if loop is not None else None
    print_result(output_format, "inspect", inspection, inspect_report(inspection, details=details))
    return ExitCode.CLEAN
