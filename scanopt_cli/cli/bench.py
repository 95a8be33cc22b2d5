"""``scanopt bench``: what do graphs cost, side by side?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.completion import complete_compiling_mode
from scanopt_cli.cli.console import status
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.options import (
    AllowPackages,
    ArgumentsFile,
    FilesFrom,
    Format,
    OutputFormat,
    Seed,
    Trust,
)
from scanopt_cli.cli.results import print_result
from scanopt_cli.cli.session import session
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from scanopt_cli.benchmarking.result import Clock


def bench(
    graphs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="GRAPH|DIR...",
            help="Graph files over the same inputs, directories of them, or patterns; the others "
            "are compared with the first.",
            show_default=False,
            readable=False,
        ),
    ] = None,
    files_from: FilesFrom = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODE",
            help="Compile in this mode: default, vm, cvm, numba, jax, or another mode of "
            "PyTensor's. Repeatable.",
            autocompletion=complete_compiling_mode,
        ),
    ] = None,
    arguments: ArgumentsFile = None,
    steps: Annotated[
        int,
        typer.Option(
            min=1, max=10**9, help="How many steps loops have, where drawn arguments decide it."
        ),
    ] = 1_000,
    grow: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=N,N,...",
            help="Measure at each of these values of a whole number, or lengths of an array, and "
            "estimate how the time grows.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="How many times all processes are started anew.")
    ] = 3,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=100_000,
            help="For about how long each graph is called in each round, on each size.",
        ),
    ] = 1.0,
    clock: Annotated[
        str,
        typer.Option(
            metavar="CLOCK",
            help="Compare this time: processor, which counts no waiting, or wall.",
        ),
    ] = "processor",
    fail_slower: Annotated[
        float | None,
        typer.Option(
            metavar="TIMES",
            help="Exit with 1 if a graph surely takes more than TIMES as long as the first: if the "
            "whole interval of confidence lies above, on any size.",
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Split a call by loop and, in the modes vm and cvm, by operation.",
        ),
    ] = False,
    seed: Seed = 0,
    timeout: Annotated[
        float,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Seconds of processor time that each process may take; if it only waits, ten "
            "times as many seconds.",
        ),
    ] = 300.0,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Measure time and memory of calls and of compilation, and say which graph is faster.

    Each graph and mode has processes of its own. They take turns, one at a time on purpose: side by
    side they would slow each other, and what else the machine does slows all of them. Medians are
    given with intervals of 95% confidence.
    """
    from scanopt_cli.benchmarking.benching import bench as bench_graphs
    from scanopt_cli.reports.bench_report import bench_report
    from scanopt_cli.verification.modes import DEFAULT

    compared = _clock(clock)
    files = _files(graphs, files_from)
    with session(*files, trust=trust, allow_packages=allow_package) as work:
        loaded = [work.load(path, recorded=arguments is None) for path in files]
        with status(str(files[0]), "measuring") as show_progress:
            found = bench_graphs(
                *loaded,
                modes=mode or DEFAULT,
                arguments=arguments,
                grow=grow,
                steps=steps,
                rounds=rounds,
                seconds=seconds,
                clock=compared,
                fail_slower=fail_slower,
                profile=profile,
                seed=seed,
                timeout=timeout,
                progress=show_progress,
            )
    print_result(output_format, "bench", found, bench_report(found))
    return finding(bool(found.slower))


def _files(paths: Sequence[Path] | None, listed_in: Path | None) -> list[Path]:
    """Return the graphs, of which one may be named twice, to be compared with itself.

    Raises
    ------
    ScanoptError
        If something that is named is no graph.
    """
    names = [graph_files([path]) for path in paths or ()]
    if listed_in is not None or not names:
        names.append(graph_files(None, listed_in))
    files = [each for found in names for each in found.items()]
    for _, error in files:
        if error is not None:
            raise error
    return [path for path, _ in files]


def _clock(name: str) -> Clock:
    from scanopt_cli.benchmarking.result import Clock

    try:
        return Clock(name)
    except ValueError:
        known = " or ".join(Clock)
        raise ScanoptError(f"there is no clock {name!r}", where="--clock", hint=known) from None
