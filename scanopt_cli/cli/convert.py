"""``scanopt convert``: write graphs in the other form, data or pickles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.options import AllowPackages, FilesFrom, Jobs, Trust
from scanopt_cli.cli.session import Session, session
from scanopt_cli.cli.targets import targets
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import (
    DATA_SUFFIX,
    GRAPH_SUFFIXES,
    Blob,
    Suffix,
    read_blob,
    stem_of,
)


def convert(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="GRAPH|DIR... OUT",
            help="Graph files, directories of them, or patterns; and in the end the file to write: "
            ".scanopt is data, .pkl a pickle; .gz gzips it. Or the directory, see --suffix.",
            show_default=False,
            readable=False,
        ),
    ],
    files_from: FilesFrom = None,
    suffix: Annotated[
        Suffix | None,
        typer.Option(
            help=f"What the files end in that are written to a directory; by default {DATA_SUFFIX}."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a graph by OUT.")] = False,
    jobs: Jobs = None,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Write graphs as data or as pickles, as the name of OUT says, with their recorded calls.

    Data is for what is kept, sent or taken from others: every later version reads it, and it holds
    no code. A graph with Ops of other packages is no data, and can only be a pickle.
    """
    *named, target = paths
    if not named and files_from is None:
        raise ScanoptError(
            "OUT is missing", hint=f"give where to write, such as {stem_of(target)}{DATA_SUFFIX}"
        )
    if not target.is_dir():
        if not target.name.endswith(GRAPH_SUFFIXES):
            raise ScanoptError(
                "its name does not say what to write",
                where=str(target),
                hint="end it in .scanopt for data, or in .pkl for a pickle",
            )
        if suffix is not None:
            what, hint = "is for a directory", f"{target} is none; leave it out"
            raise ScanoptError(what, where="--suffix", hint=hint)
    ending = suffix or DATA_SUFFIX
    files = graph_files(named, files_from)
    places = targets(
        list(files),
        target,
        force=force,
        option="OUT",
        named=lambda name: name.with_name(f"{stem_of(name)}{ending}"),
    )
    batch = Batch(files, jobs)
    batch.run(lambda path: _Converting(places[path], trust, tuple(allow_package or ())))
    return batch.finish()


@dataclass(frozen=True, slots=True)
class _Converting(Task[None]):
    """What is done with a graph: it is written to ``place``."""

    place: Path
    trust: bool
    allow_packages: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        """Nothing is: it would be the file once more."""
        return False

    def read(self, path: Path) -> Sequence[Blob]:
        """Return the content of the file, with recorded values."""
        return (read_blob(path, recorded=True),)

    def work(self, _path: Path, files: Sequence[Blob], _title: str, /) -> Done[None]:
        """Return a graph in the form that its place has."""
        from scanopt_cli.serialization.saving import file_of

        with session(*files, trust=self.trust, allow_packages=self.allow_packages) as work:
            (graph,) = map(work.load, files)
            return Done(None, files={self.place: file_of(graph, self.place, trust=self.trust)})

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return Session(self.trust, self.allow_packages)

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        return patience(path, trust=self.trust)
