"""``scanopt bisect``: which rewrite breaks a graph?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.console import plug_in_warnings, status
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.options import (
    AllowPackages,
    Format,
    GraphFile,
    OutputFormat,
    Pipeline,
    Trust,
)
from scanopt_cli.cli.results import print_result
from scanopt_cli.cli.session import session
from scanopt_cli.cli.targets import write
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from scanopt_cli.culprits.culprit import Culprit
    from scanopt_cli.culprits.properties import Property


def bisect(
    graph: GraphFile,
    passes: Pipeline = "default",
    mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="The mode that compiles the graph: default, vm, cvm, numba, jax, another mode of "
            "PyTensor's, or plain for none.",
        ),
    ] = "default",
    check: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Run this on the graph, {} being its path: it is broken if this fails.",
        ),
    ] = None,
    raises: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The graph is broken if compiling raises an error with this text; '' for any.",
        ),
    ] = None,
    rtol: Annotated[
        float | None,
        typer.Option(min=0, help="How far values may be apart, as a fraction of them."),
    ] = None,
    runs: Annotated[
        int, typer.Option(min=1, help="How many random runs, beside recorded ones.")
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    timeout: Annotated[
        float,
        typer.Option(
            min=1, max=1_000_000, help="Seconds of processor time of each evaluation and pass."
        ),
    ] = 300.0,
    memory: Annotated[
        float, typer.Option(min=0.5, max=4_096, help="GB of memory that passes may use.")
    ] = 8.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output-dir",
            metavar="DIR",
            help="Keep the graphs before and after each rewrite that is found there.",
        ),
    ] = None,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Find the first rewrite that breaks a graph: of a pass, or of PyTensor's.

    By default, a graph is broken if its values differ from those of the graph as it is, plain or
    compiled. Exits with 1 if there is such a rewrite, with 0 if nothing is broken.
    """
    from scanopt_cli.culprits.bisecting import bisect as bisect_graph
    from scanopt_cli.culprits.properties import (
        CommandFails,
        CompilingRaises,
        Limits,
        ValuesDiffer,
    )
    from scanopt_cli.pipeline.grammar import parse
    from scanopt_cli.reports.bisect_report import bisect_report

    if check is not None and raises is not None:
        raise ScanoptError("are two properties", where="--check and --raises", hint="give one")
    if output is not None and not output.is_dir():
        raise ScanoptError(
            "there is no such directory", where=f"-o {output}", hint="create it first"
        )
    wrong: Property = ValuesDiffer(compiled_by=mode, rtol=rtol, runs=runs, seed=seed)
    if check is not None:
        wrong = CommandFails(command=check)
    elif raises is not None:
        wrong = CompilingRaises(compiled_by=mode, error=raises)
    with plug_in_warnings():
        sequence = parse(passes)
    with session(graph, trust=trust, allow_packages=allow_package) as work:
        loaded = work.load(graph, recorded=True)
        with status(str(graph), "bisecting") as show_progress:
            found = bisect_graph(
                loaded,
                sequence,
                wrong=wrong,
                limits=Limits(timeout=timeout, memory=int(memory * 2**30)),
                progress=show_progress,
            )
        print_result(output_format, "bisect", found, bisect_report(str(graph), found))
        for number, culprit in enumerate(found.culprits, 1):
            if output is not None:
                _keep(
                    culprit, output, "" if len(found.culprits) == 1 else f"{number}.", trust=trust
                )
    return finding(bool(found.culprits))


def _keep(culprit: Culprit, directory: Path, prefix: str, *, trust: bool) -> None:
    """Write the graphs around a rewrite, as far as there are some."""
    for name, graph in (("before", culprit.before), ("after", culprit.after)):
        if graph is not None:
            write(graph, directory / f"{prefix}{name}.pkl", trust=trust)
