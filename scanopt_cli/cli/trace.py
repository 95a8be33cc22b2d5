"""``scanopt trace``: the values of the slots of loops at each step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.console import status, tell
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.options import (
    AllowPackages,
    ArgumentsFile,
    Format,
    GraphFile,
    OutputFormat,
    Seed,
    Timeout,
    Trust,
)
from scanopt_cli.cli.results import print_result
from scanopt_cli.cli.session import session
from scanopt_cli.cli.targets import require_target
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from scanopt_cli.tracing.result import Trace


def trace(
    graph: GraphFile,
    other: Annotated[
        Path | None, typer.Argument(metavar="[B]", help="The second graph, with --between.")
    ] = None,
    between: Annotated[
        bool,
        typer.Option(
            "--between",
            help="Show the first step, and the first node inside, at which the loops of two graphs "
            "differ; exits with 1 if they do.",
        ),
    ] = False,
    loop: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|LINE",
            help="Trace this loop: by its name, a path of names as outer/inner, or the line that "
            "wrote it. By default all that are in no other loop.",
        ),
    ] = None,
    slot: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this slot, as `inspect` calls it. Repeatable."),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Only these steps: 5:10, 5:, -3:, or 7 alone."),
    ] = None,
    inner: Annotated[
        bool, typer.Option("--inner", help="The values of the nodes inside, too.")
    ] = False,
    outer_step: Annotated[
        list[int] | None,
        typer.Option(
            metavar="K",
            help="In which step of the loop around it a loop is traced: 0 by default. Of several "
            "around it, the nearest, or repeat it, the outermost first.",
        ),
    ] = None,
    arguments: ArgumentsFile = None,
    seed: Seed = 0,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a row for each step.")
    ] = None,
    npz: Annotated[
        Path | None, typer.Option("--npz", metavar="FILE", help="Write arrays, by slot.")
    ] = None,
    timeout: Timeout = 300.0,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Show what loops compute at each step; of two graphs, where they begin to differ.

    Loops are run step by step, without rewrites, in a child process.
    """
    if between:
        _require_none({"--loop": loop, "--slot": slot, "--steps": steps, "--inner": inner})
        _require_none({"--outer-step": outer_step, "--csv": csv, "--npz": npz})
        if other is None:
            raise ScanoptError("takes two graphs", where="--between")
        return _between(graph, other, arguments, seed, timeout, output_format, trust, allow_package)
    if other is not None:
        raise ScanoptError("takes one graph", where="trace", hint="compare two by --between")
    from scanopt_cli.reports.trace_report import trace_report
    from scanopt_cli.tracing.step_range import StepRange
    from scanopt_cli.tracing.tracing import trace as trace_graph

    wanted = StepRange.of(steps, where="--steps")
    for option, target in (("--csv", csv), ("--npz", npz)):
        if target is not None:
            require_target(target, graph, force=False, option=option)
    with session(graph, trust=trust, allow_packages=allow_package) as work:
        loaded = work.load(graph, recorded=arguments is None)
        with status(str(graph), "tracing") as show_progress:
            found = trace_graph(
                loaded,
                arguments,
                loop=loop,
                slot=slot,
                steps=wanted,
                inner=inner,
                outer_step=outer_step or 0,
                seed=seed,
                timeout=timeout,
                progress=show_progress,
            )
    _write(found, csv, npz)
    report = trace_report(found, every_step=steps is not None)
    print_result(output_format, "trace", found, report)
    return ExitCode.CLEAN


def _require_none(options: dict[str, object]) -> None:
    for option, value in options.items():
        if value:
            raise ScanoptError("is for one graph", where=option, hint="leave out --between")


def _write(found: Trace, csv: Path | None, npz: Path | None) -> None:
    """Write files, after everything that can be wrong was found out."""
    from scanopt_cli.serialization.writing import write_atomically
    from scanopt_cli.tracing.exporting import csv_bytes, lone_loop, npz_bytes

    wanted = [("--csv", csv, csv_bytes), ("--npz", npz, npz_bytes)]
    data = [
        (target, write(lone_loop(found, where=option)))
        for option, target, write in wanted
        if target is not None
    ]
    for target, content in data:
        write_atomically(target, content)
        tell(f"wrote {target}")


def _between(
    a: Path,
    b: Path,
    arguments: Path | None,
    seed: int,
    timeout: float,
    output_format: Format,
    trust: bool,
    allow_package: list[str] | None,
) -> ExitCode:
    from scanopt_cli.reports.first_difference_report import first_difference_report
    from scanopt_cli.tracing.differing import first_difference

    with session(a, b, trust=trust, allow_packages=allow_package) as work:
        first, second = (work.load(path, recorded=arguments is None) for path in (a, b))
        with status(str(b), "tracing") as show_progress:
            found = first_difference(
                first, second, arguments, seed=seed, timeout=timeout, progress=show_progress
            )
    print_result(output_format, "trace", found, first_difference_report(found))
    # That nothing could be compared is no agreement.
    return finding(found.differs) if found.loops else ExitCode.FAILED
