"""``scanopt capture``: keep every graph with a Scan that a program compiles."""

from __future__ import annotations

import signal
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
    on_slow: Annotated[
        float | None,
        typer.Option(
            "--on-slow",
            metavar="SECONDS",
            min=0,
            help="Keep only graphs whose compilation and first call took so long, or longer: "
            "Numba and JAX compile in the first call.",
        ),
    ] = None,
    on_error: Annotated[
        bool,
        typer.Option(
            "--on-error", help="Keep only graphs whose compilation or first call raised an error."
        ),
    ] = False,
) -> int:
    """Run a program and keep every graph with a Scan that it compiles, unoptimised.

    The values of each graph's first call are kept beside it, and index.json says where each comes
    from and how long it took. With both --on-slow and --on-error, graphs of either kind are kept.
    Exits with the program's exit code, or 128 plus the number of the signal that ended it; if that
    is not 0, a line before the last one says so.
    """
    from scanopt_cli.integration.capture.captured_program import run_captured

    before = _graphs(directory)
    code = run_captured(program, directory, on_slow=on_slow, on_error=on_error)
    new = _graphs(directory) - before
    there = f", which already held {plural(len(before), 'graph')}" if before else ""
    pickles = sum(path.suffix == ".pkl" for path in new)
    how = f" ({pickles} as {'pickles' if pickles > 1 else 'a pickle'})" if pickles else ""
    which = "" if on_slow is None and not on_error else " that is slow or raises an error"
    # What a program that failed did not compile is not to be taken for what it does not have.
    until = ""
    if code:
        tell(f"the program {_end(code)}")
        until = "until then, "
    tell(
        f"{until}kept {plural(len(new), 'graph')}{how} in {directory}{there}"
        if new
        else f"{until or 'the program '}compiled no graph with a Scan{which}"
    )
    return code


def _end(code: int) -> str:
    """Return how a program ended whose exit code is not 0."""
    from scanopt_cli.integration.capture.captured_program import SIGNALLED

    number = code - SIGNALLED
    if number in {*signal.Signals}:
        return f"was ended by {signal.Signals(number).name}, with exit code {code}"
    return f"ended with exit code {code}"


def _graphs(directory: Path) -> set[Path]:
    return {*directory.glob("*.scanopt"), *directory.glob("*.pkl")}
