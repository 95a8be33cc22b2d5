"""``scanopt python``: a graph as a Python script that builds it without scanopt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scanopt_cli.cli.console import out, tell
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import AllowPackages, GraphFile, Trust
from scanopt_cli.cli.session import session
from scanopt_cli.cli.targets import require_target
from scanopt_cli.errors import ScanoptError


def python(
    graph: GraphFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output-file",
            metavar="FILE.py",
            help="Write the script here, and long constants beside it, in FILE.npz.",
        ),
    ] = None,
    values: Annotated[
        bool,
        typer.Option(
            "--values",
            help="Add the recorded values of the inputs; the script then prints the outputs.",
        ),
    ] = False,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Print a graph as a short Python script, which builds it again without scanopt.

    It is run once before: what it builds has the digest of the graph. TracedLoops alone, which
    optimize -p loop makes, need scanopt_cli.loop.
    """
    from scanopt_cli.python_source.to_python import to_python

    if output is not None:
        require_target(output, graph, force=False)
    with session(graph, trust=trust, allow_packages=allow_package) as work:
        script = to_python(work.load(graph, recorded=values), values=values)
    if output is not None:
        script.save(output)
        tell(f"wrote {output}")
    elif script.constants:
        raise ScanoptError(
            "has arrays that go into a file beside the script",
            where=str(graph),
            hint="name the script by -o FILE.py",
        )
    else:
        out().out(script.text, end="", highlight=False)
    return ExitCode.CLEAN
