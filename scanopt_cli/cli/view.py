"""``scanopt view``: graphs as one page that anyone can open."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.completion import complete_pipeline
from scanopt_cli.cli.console import plug_in_warnings, status, tell
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.options import (
    AllowPackages,
    ClusterAddress,
    FilesFrom,
    GraphFiles,
    Jobs,
    SchedulerFile,
    Seed,
    StepCode,
    Timeout,
    Trust,
)
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.session import Session, session
from scanopt_cli.cli.where import where_to_work
from scanopt_cli.serialization.files import Blob, read_blob

if TYPE_CHECKING:
    from scanopt_cli.page.contents.parts import Part
    from scanopt_cli.page.viewing import Shown

_ENDINGS = (".gz", ".pickle", ".pkl", ".scanopt")


def view(
    graphs: GraphFiles = None,
    files_from: FilesFrom = None,
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
    jobs: Jobs = None,
    cluster: ClusterAddress = None,
    scheduler_file: SchedulerFile = None,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Write a page with the picture of graphs: loops as nested boxes, their slots, what feeds them.

    The page is one file that needs no network, so that it can be sent, or kept with a CI run.
    """
    from scanopt_cli.page.viewing import Shown
    from scanopt_cli.pipeline.grammar import parse

    files = graph_files(graphs, files_from)
    if passes is not None:
        with plug_in_warnings():
            parse(passes)
    page = _default(list(files)) if output is None else output
    require_page(page, files, option="" if output is None else "-o")
    shown = Shown(passes=passes, values=values, code=code, seed=seed, timeout=timeout)
    parts: list[Part] = []
    where = where_to_work(jobs, cluster, scheduler_file)
    batch = Batch(files, where)
    drawing = _Drawing(shown, trust=trust, allow_packages=tuple(allow_package or ()))
    batch.run(lambda _path: drawing, lambda _path, part: parts.append(part))
    if parts:
        write_page(page, parts, batch.failures)
        if opens and not webbrowser.open(page.resolve().as_uri()):
            tell("no browser can be opened")
    return batch.finish()


@dataclass(frozen=True, slots=True)
class _Drawing(Task["Part"]):
    """What is done with a graph."""

    shown: Shown
    trust: bool
    allow_packages: tuple[str, ...]

    def read(self, path: Path) -> Sequence[Blob]:
        """Return the content of the file, with recorded values if the page shows values."""
        return (read_blob(path, recorded=self.shown.values),)

    def work(self, _path: Path, files: Sequence[Blob], title: str, /) -> Done[Part]:
        """Return what the page says of a graph."""
        from scanopt_cli.page.viewing import part_of

        with (
            session(*files, trust=self.trust, allow_packages=self.allow_packages) as work,
            status(title, "drawing") as show_progress,
        ):
            (graph,) = map(work.load, files)
            return Done(part_of(graph, self.shown, progress=show_progress))

    @property
    def is_kept(self) -> bool:
        """Nothing is: what a page shows is large."""
        return False

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return Session(self.trust, self.allow_packages)

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        more = self.shown.timeout if self.shown.values else 0
        return patience(path, trust=self.trust, more=more)


def _default(graphs: list[Path]) -> Path:
    """Return where the page goes: into the present directory, under the name of the graph."""
    name = graphs[0].name if len(graphs) == 1 else "graphs"
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return Path(f"{name or 'graph'}.html")
