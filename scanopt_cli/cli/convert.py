"""``scanopt convert``: write a graph in the other form, data or a pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import AllowPackages, GraphFile, Trust
from scanopt_cli.cli.session import session
from scanopt_cli.cli.targets import require_target, write
from scanopt_cli.errors import ScanoptError


def convert(
    graph: GraphFile,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The file to write: .scanopt is data, .pkl a pickle; .gz gzips it."
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace the graph by OUT.")] = False,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Write a graph as data or as a pickle, as the name of OUT says, with its recorded calls.

    Data is for what is kept, sent or taken from others: every later version reads it, and it holds
    no code. A graph with Ops of other packages is no data, and can only be a pickle.
    """
    from scanopt_cli.serialization.files import GRAPH_SUFFIXES

    if not target.name.endswith(GRAPH_SUFFIXES):
        raise ScanoptError(
            "its name does not say what to write",
            where=str(target),
            hint="end it in .scanopt for data, or in .pkl for a pickle",
        )
    require_target(target, graph, force=force, option="OUT")
    with session(graph, trust=trust, allow_packages=allow_package) as work:
        write(work.load(graph, recorded=True), target, trust=trust)
    return ExitCode.CLEAN
