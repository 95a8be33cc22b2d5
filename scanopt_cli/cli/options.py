"""Arguments and options that commands share, each declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from scanopt_cli.cli.completion import complete_mode, complete_pipeline
from scanopt_cli.environment import JOBS
from scanopt_cli.errors import ScanoptError


class Format(StrEnum):
    """How a result is printed."""

    RICH = "rich"
    JSON = "json"
    MARKDOWN = "markdown"


class ListFormat(StrEnum):
    """How the results of several graphs are printed."""

    RICH = "rich"
    JSON = "json"
    JSONL = "jsonl"
    MARKDOWN = "markdown"


class GateFormat(StrEnum):
    """How a result is printed that a CI job fails for."""

    RICH = "rich"
    JSON = "json"
    GITHUB = "github"
    MARKDOWN = "markdown"


def require_page_for(page: Path | None, *, code: bool) -> None:
    """Check that ``--code`` is not given without ``--html``.

    Raises
    ------
    ScanoptError
        If it is.
    """
    if code and page is None:
        raise ScanoptError("is for --html", where="--code", hint="give both, or neither")


def require_use_of_force(output: Path | None, *, force: bool) -> None:
    """Check that ``--force`` is not given without ``-o``.

    Raises
    ------
    ScanoptError
        If it is.
    """
    if force and output is None:
        raise ScanoptError("is for -o", where="--force", hint="give both, or neither")


GraphFile = Annotated[
    Path, typer.Argument(metavar="GRAPH", help="A graph file: .scanopt or a pickle.")
]
GraphFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="GRAPH|DIR...",
        help="Graph files (.scanopt or pickles), directories of them, or patterns such as "
        "'graphs/**/*.pkl'.",
        show_default=False,
        readable=False,
    ),
]
LockedGraphs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="GRAPH|DIR...",
        help="Graph files, directories of them, or patterns; by default all that is locked.",
        readable=False,
    ),
]
FilesFrom = Annotated[
    Path | None,
    typer.Option(
        "--files-from",
        metavar="FILE",
        help="Also those that this file lists, - for stdin: one a line, or NUL between them.",
        readable=False,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "-j",
        "--jobs",
        metavar="N",
        min=0,
        max=1_024,
        envvar=JOBS,
        help="Work on so many graphs at a time, each in a process of its own; by default as many "
        "as there are cores. 0 does all in this process, one after the other.",
    ),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Let the workers of a Dask cluster do it, whose scheduler is at ADDRESS, such as "
        "tcp://host:8786; graphs are sent as data. Needs the extra scanopt\\[dask].",
    ),
]
SchedulerFile = Annotated[
    Path | None,
    typer.Option(
        "--scheduler-file",
        metavar="FILE",
        help="The same, with the file that the scheduler wrote by its --scheduler-file.",
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Load anything the file holds. It can run code: use it for your own files only.",
    ),
]
AllowPackages = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-package",
        metavar="NAME",
        help="Also build Ops and Types that this installed package defines: their constructors "
        "run on what the file says. Repeatable.",
    ),
]
OutputFile = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output-file",
        metavar="OUT",
        help="Write the resulting graph here; a directory if there are several.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Let -o replace the graph by its own result.")]
HtmlFile = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write all of this as one page too, with the picture of the graph; it needs no "
        "network. An earlier page is replaced, no other file.",
    ),
]
StepCode = Annotated[
    bool,
    typer.Option(
        "--code",
        help="Let the page show a step of each distinct loop as Python source: as the graph has "
        "it, and as PyTensor's rewrites leave it to be compiled; no machine code.",
    ),
]
Pipeline = Annotated[
    str,
    typer.Option(
        "-p",
        "--passes",
        metavar="PIPELINE",
        help="Passes to run, such as 'remove-unused,save-mem{prealloc=true}', or a preset.",
        autocompletion=complete_pipeline,
    ),
]
Modes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODE",
        help="Also compile in this mode and compare its values: default, vm, cvm, numba, jax, "
        "another mode of PyTensor's, or plain to compile nothing. Repeatable.",
        autocompletion=complete_mode,
    ),
]
ArgumentsFile = Annotated[
    Path | None,
    typer.Option(
        "--arguments",
        metavar="FILE",
        help="Values of the inputs, by name, in a file that numpy.savez wrote. By default those of "
        "the first recorded call, else they are drawn as by `verify`.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of arguments that are drawn.")]
Timeout = Annotated[
    float,
    typer.Option(
        min=1,
        max=1_000_000,
        help="Seconds of processor time until the evaluation is given up; if it only waits, "
        "ten times as many seconds.",
    ),
]
ListOutputFormat = Annotated[
    ListFormat,
    typer.Option(
        "--format", help="How to print the results; jsonl prints an object a line, as they come."
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", help="How to print the result.")]
