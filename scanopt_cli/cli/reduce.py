"""``scanopt reduce``: the smallest graph that is still broken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scanopt_cli.cli.completion import complete_pipeline
from scanopt_cli.cli.console import plug_in_warnings, status, tell
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import AllowPackages, Force, Format, GraphFile, OutputFormat, Trust
from scanopt_cli.cli.properties import (
    Arguments,
    Check,
    LargerThan,
    Memory,
    Mode,
    Raises,
    Repro,
    Rtol,
    Runs,
    Seed,
    SlowerThan,
    Steps,
    Timeout,
    limits_of,
    property_of,
    with_arguments,
    write_pass_repro,
    write_repro,
)
from scanopt_cli.cli.results import print_result
from scanopt_cli.cli.session import session
from scanopt_cli.cli.targets import is_same_file, require_target
from scanopt_cli.errors import ScanoptError


def reduce(
    graph: GraphFile,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output-file",
            metavar="OUT",
            help="Write the smallest broken graph here, and each one that is found meanwhile.",
        ),
    ],
    force: Force = False,
    passes: Annotated[
        str,
        typer.Option(
            "-p",
            "--passes",
            metavar="PIPELINE",
            help="The graph is broken if what these passes make of it is; by default none, so that "
            "it is what PyTensor's compilation makes of it.",
            autocompletion=complete_pipeline,
        ),
    ] = "none",
    mode: Mode = "default",
    rewriter: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The rewriter of PyTensor's to blame, as `bisect` names it: a smaller graph must "
            "be right without it.",
        ),
    ] = None,
    check: Check = None,
    raises: Raises = None,
    slower: SlowerThan = None,
    larger: LargerThan = None,
    rtol: Rtol = None,
    arguments: Arguments = None,
    steps: Steps = None,
    runs: Runs = 5,
    seed: Seed = 0,
    timeout: Timeout = 300.0,
    memory: Memory = 8.0,
    most: Annotated[
        int | None, typer.Option("--most", min=1, help="The most graphs to try in this call.")
    ] = None,
    repro: Repro = None,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Make a broken graph smaller while it stays broken, until nothing more can be taken away.

    If it is interrupted, or has tried --most, OUT is the smallest broken graph so far, and
    OUT.tried says what was tried: the same command goes on from there.
    """
    from scanopt_cli.culprits.reducing import reduce as reduce_graph
    from scanopt_cli.ir.graph import Graph
    from scanopt_cli.pipeline.grammar import parse
    from scanopt_cli.reports.reduce_report import reduce_report
    from scanopt_cli.serialization.saving import save

    if rewriter is not None and (passes != "none" or check is not None):
        raise ScanoptError(
            "is for what PyTensor compiles wrongly",
            where="--rewriter",
            hint="leave it out, or --check and -p",
        )
    require_target(output, graph, force=force)
    if repro is not None:
        require_target(repro, graph, force=False)
    wrong = property_of(mode, check, raises, slower, larger, rtol, runs, seed, arguments, steps)
    limits = limits_of(timeout, memory)
    # Once GRAPH is replaced, it is another one that is reduced.
    tried = None if is_same_file(output, graph) else output.with_name(f"{output.name}.tried")
    has_kept = False
    with plug_in_warnings():
        sequence = parse(passes)

    def keep(smaller: Graph) -> None:
        nonlocal has_kept
        save(smaller, output, trust=trust)
        has_kept = True

    with session(graph, trust=trust, allow_packages=allow_package) as work:
        loaded = with_arguments(work.load(graph, recorded=arguments is None), arguments)
        with status(str(graph), "reducing") as show_progress:
            try:
                found = reduce_graph(
                    loaded,
                    sequence,
                    wrong=wrong,
                    limits=limits,
                    rewriter=rewriter,
                    most=most,
                    tried=tried,
                    found=keep,
                    progress=show_progress,
                )
            except KeyboardInterrupt:
                tell(_stopped(output, tried, has_kept=has_kept))
                raise
        keep(found.graph)
        print_result(output_format, "reduce", found, reduce_report(str(graph), str(output), found))
        if repro is not None:
            if found.is_failing:
                write_pass_repro(found.graph, found.pipeline, found.why, repro)
            else:
                write_repro(found.graph, wrong, limits, repro)
    if tried is not None and tried.exists():
        tell(f"the same command goes on; {tried} has what was tried")
    return ExitCode.CLEAN


def _stopped(output: Path, tried: Path | None, *, has_kept: bool) -> str:
    """Return how an interrupted reduction goes on."""
    smallest = f"; {output} is the smallest broken graph so far" if has_kept else ""
    if tried is None:
        return f"stopped{smallest}"
    if not tried.exists():
        return "stopped before a smaller graph was tried"
    return f"stopped; the same command goes on{smallest or ', and found nothing smaller yet'}"
