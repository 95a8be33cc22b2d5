"""``scanopt view``: graphs as one page that anyone can open."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.completion import complete_pipeline
from scanopt_cli.cli.console import plug_in_warnings, status, tell
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import (
    AllowPackages,
    GraphFiles,
    Seed,
    StepCode,
    Timeout,
    Trust,
)
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.session import session

if TYPE_CHECKING:
    from scanopt_cli.page.contents.parts import Part

_ENDINGS = (".gz", ".pickle", ".pkl", ".scanopt")


def view(
    graphs: GraphFiles,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output-file",
            metavar="PAGE",
            help="Write the page here. By default it is GRAPH.html in the present directory, or "
            "graphs.html for several. An earlier page is replaced, no other file.",
        ),
    ] = None,
    passes: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--passes",
            metavar="PIPELINE",
            help="Show what these passes, or those of a preset, make of the graph, step by step; "
            "the graph itself stays as it is.",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    values: Annotated[
        bool,
        typer.Option(
            "--values",
            help="Show at each slot of a loop what it holds, step by step: of the first recorded "
            "call, or of drawn arguments, as by `trace`; of a loop inside of another, in the first "
            "step of that one.",
        ),
    ] = False,
    seed: Seed = 0,
    timeout: Timeout = 300.0,
    code: StepCode = False,
    opens: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = False,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Write a page with the picture of graphs: loops as nested boxes, their slots, what feeds them.

    The page is one file that needs no network, so that it can be sent, or kept with a CI run.
    """
    from scanopt_cli.page.viewing import Shown, part_of
    from scanopt_cli.pipeline.grammar import parse

    graphs = list(dict.fromkeys(graphs))
    if passes is not None:
        with plug_in_warnings():
            parse(passes)
    page = _default(graphs) if output is None else output
    require_page(page, graphs, option="" if output is None else "-o")
    shown = Shown(passes=passes, values=values, code=code, seed=seed, timeout=timeout)
    batch = Batch(graphs)
    parts: list[Part] = []
    for path in graphs:
        with (
            batch.attempt(path),
            session(path, trust=trust, allow_packages=allow_package) as work,
            status(str(path), "drawing") as show_progress,
        ):
            graph = work.load(path, recorded=values)
            parts.append(part_of(graph, shown, progress=show_progress))
            batch.results.append(path)
    if parts:
        write_page(page, parts, batch)
        if opens and not webbrowser.open(page.resolve().as_uri()):
            tell("no browser can be opened")
    return batch.finish(ExitCode.CLEAN)


def _default(graphs: list[Path]) -> Path:
    """Return where the page goes: into the present directory, under the name of the graph."""
    name = graphs[0].name if len(graphs) == 1 else "graphs"
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return Path(f"{name or 'graph'}.html")
