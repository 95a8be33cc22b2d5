"""``scanopt capture``: keep every graph with a Scan that a program compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scanopt_cli.cli.console import tell
from scanopt_cli.text import plural


def capture(
    program: Annotated[
        list[str],
        typer.Argument(metavar="-- PROGRAM [ARG...]", help="The program to run, as it is."),
    ],
    directory: Annotated[
        Path, typer.Option("-o", "--output-dir", metavar="DIR", help="Where the graphs go.")
    ] = Path("scanopt-capture"),
) -> int:
    """Run a program and keep every graph with a Scan that it compiles, unoptimised.

    The values of each graph's first call are kept beside it. Exits with the program's exit code.
    """
    from scanopt_cli.integration.capture.captured_program import run_captured

    before = set(directory.glob("*.pkl"))
    code = run_captured(program, directory)
    kept = len(set(directory.glob("*.pkl")) - before)
    there = f", which already held {plural(len(before), 'graph')}" if before else ""
    tell(
        f"kept {plural(kept, 'graph')} in {directory}{there}"
        if kept
        else "the program compiled no graph with a Scan"
    )
    return code
