"""``scanopt inspect``: every Scan of a graph and its slots."""

from __future__ import annotations

from scanopt_cli.cli.batch import load_graph
from scanopt_cli.cli.console import out
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.limits import limited
from scanopt_cli.cli.options import AllowPackages, Format, GraphFile, OutputFormat, Trust


def inspect(
    graph: GraphFile,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Show every Scan: steps, slots, taps, what feeds and reads them, buffer lengths."""
    from scanopt_cli.analysis.inspection import inspect_graph
    from scanopt_cli.reports import inspect_markdown, inspect_rich
    from scanopt_cli.reports.as_json import to_json

    with limited(graph, trust=trust):
        loaded = load_graph(graph, trust=trust, allow_packages=allow_package)
        inspection = inspect_graph(loaded.fgraph)
    match output_format:
        case Format.JSON:
            out().out(to_json("inspect", inspection))
        case Format.MARKDOWN:
            out().out(inspect_markdown.render(inspection))
        case Format.RICH:
            out().print(inspect_rich.render(inspection))
    return ExitCode.CLEAN
