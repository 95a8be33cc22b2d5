"""``scanopt inspect``: every Scan of a graph and its slots."""

from __future__ import annotations

from scanopt_cli.cli.batch import load_graph
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.limits import limited
from scanopt_cli.cli.options import AllowPackages, Format, GraphFile, OutputFormat, Trust
from scanopt_cli.cli.results import print_result


def inspect(
    graph: GraphFile,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Show every Scan: steps, slots, taps, what feeds and reads them, buffer lengths."""
    from scanopt_cli.analysis.inspection import inspect_graph
    from scanopt_cli.reports.inspect_report import inspect_report

    with limited(graph, trust=trust):
        loaded = load_graph(graph, trust=trust, allow_packages=allow_package)
        inspection = inspect_graph(loaded.fgraph)
    print_result(output_format, "inspect", inspection, inspect_report(inspection))
    return ExitCode.CLEAN
