"""``scanopt inspect``: the loops of a graph, and the slots of each."""

from __future__ import annotations

from typing import Annotated

import typer

from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import (
    AllowPackages,
    Format,
    GraphFile,
    HtmlFile,
    OutputFormat,
    StepCode,
    Trust,
    require_page_for,
)
from scanopt_cli.cli.pages import require_page, write_page
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
    html: HtmlFile = None,
    code: StepCode = False,
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

    require_page_for(html, code=code)
    require_page(html, [graph])
    parts = []
    with session(graph, trust=trust, allow_packages=allow_package, only_read=html is None) as work:
        loaded = work.load(graph)
        inspection = chosen(inspect_graph(loaded.fgraph), loop, depth)
        if html is not None:
            from scanopt_cli.page.contents.step_code import code_sections
            from scanopt_cli.page.contents.view_page import Viewed, view_part

            more = tuple(code_sections(loaded)) if code else ()
            parts.append(view_part(Viewed(graph=loaded, inspection=inspection, more=more)))
    details = True if loop is not None else None
    print_result(output_format, "inspect", inspection, inspect_report(inspection, details=details))
    if html is not None:
        write_page(html, parts)
    return ExitCode.CLEAN
