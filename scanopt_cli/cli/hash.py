"""``scanopt hash``: the canonical digests of graphs and of the loop bodies in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.console import tell
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import AllowPackages, Format, GraphFiles, OutputFormat, Trust
from scanopt_cli.cli.results import print_blocks, print_json
from scanopt_cli.cli.session import session

if TYPE_CHECKING:
    from scanopt_cli.equivalence.hashing import GraphDigest


def hash_graphs(
    graphs: GraphFiles,
    inner: Annotated[
        bool,
        typer.Option(
            "--inner", help="Also each distinct body inside, with how often it is applied."
        ),
    ] = False,
    names: Annotated[
        bool, typer.Option("--names", help="Hash names of variables, loops and OpFromGraphs too.")
    ] = False,
    gradients: Annotated[
        bool,
        typer.Option(
            "--gradients",
            help="Hash how an OpFromGraph is differentiated and whether it is inlined, too.",
        ),
    ] = False,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Print the digest of each graph: equal for graphs that compute the same by the same Ops.

    The same in every process; renaming and reordering do not change it.
    """
    from scanopt_cli.equivalence.hashing import hash_graph
    from scanopt_cli.reports.hash_report import hash_report

    batch = Batch(graphs)
    for path in graphs:
        with batch.attempt(path):
            with session(path, trust=trust, allow_packages=allow_package, only_read=True) as work:
                graph = work.load(path)
                digest = hash_graph(graph, inner=inner, names=names, gradients=gradients)
            batch.results.append(digest)
            if output_format is not Format.JSON:
                print_blocks(output_format, hash_report(digest))
            _warn_if_opaque(digest)
    if output_format is Format.JSON:
        options = {"names": names, "gradients": gradients}
        print_json("hash", {**options, "graphs": batch.results})
    return batch.finish(ExitCode.CLEAN)


def _warn_if_opaque(graph: GraphDigest) -> None:
    if graph.opaque:
        first = graph.opaque[0] if len(graph.opaque) == 1 else f"{graph.opaque[0]} and others"
        tell(
            f"note: {graph.source}: holds what cannot be compared by value ({first}); "
            "its digest is good for this process only"
        )
