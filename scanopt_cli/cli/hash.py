"""``scanopt hash``: the canonical digests of graphs and of the loop bodies in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.console import tell
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.options import (
    AllowPackages,
    ClusterAddress,
    FilesFrom,
    Format,
    GraphFiles,
    Jobs,
    ListFormat,
    ListOutputFormat,
    SchedulerFile,
    Trust,
)
from scanopt_cli.cli.results import json_list, print_blocks
from scanopt_cli.cli.session import Session, session
from scanopt_cli.cli.where import where_to_work
from scanopt_cli.serialization.files import Blob

if TYPE_CHECKING:
    from scanopt_cli.equivalence.hashing import GraphDigest
    from scanopt_cli.reports.as_json import JsonList


def hash_graphs(
    graphs: GraphFiles = None,
    files_from: FilesFrom = None,
    inner: Annotated[
        bool,
        typer.Option(
            "--inner", help="Also each distinct body inside, with how often it is applied."
        ),
    ] = False,
    names: Annotated[
        bool, typer.Option("--names", help="Hash names of variables, loops and OpFromGraphs too.")
    ] = False,
    gradients: Annotated[
        bool,
        typer.Option(
            "--gradients",
            help="Hash how an OpFromGraph is differentiated and whether it is inlined, too.",
        ),
    ] = False,
    output_format: ListOutputFormat = ListFormat.RICH,
    jobs: Jobs = None,
    cluster: ClusterAddress = None,
    scheduler_file: SchedulerFile = None,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Print the digest of each graph: equal for graphs that compute the same by the same Ops.

    The same in every process; renaming and reordering do not change it.
    """
    json = json_list(output_format, "hash", names=names, gradients=gradients)
    task = _Hashing(
        inner=inner,
        names=names,
        gradients=gradients,
        json=json,
        output_format=output_format,
        trust=trust,
        allow_packages=tuple(allow_package or ()),
    )
    where = where_to_work(jobs, cluster, scheduler_file)
    batch = Batch(graph_files(graphs, files_from), where, json)
    batch.run(lambda _path: task)
    return batch.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hashing(Task[None]):
    """What is done with a graph."""

    inner: bool
    names: bool
    gradients: bool
    json: JsonList | None
    output_format: ListFormat
    trust: bool
    allow_packages: tuple[str, ...]

    def work(self, _path: Path, files: Sequence[Blob], _title: str, /) -> Done[None]:
        """Print the digests of a graph, or return them as JSON."""
        from scanopt_cli.equivalence.hashing import hash_graph
        from scanopt_cli.reports.hash_report import hash_report

        with session(
            *files, trust=self.trust, allow_packages=self.allow_packages, only_read=True
        ) as work:
            (graph,) = map(work.load, files)
            digest = hash_graph(graph, inner=self.inner, names=self.names, gradients=self.gradients)
        if self.json is None:
            print_blocks(Format(self.output_format.value), hash_report(digest))
        _warn_if_opaque(digest)
        entry = None if self.json is None else self.json.entry(digest)
        return Done(None, entry, is_kept=not digest.opaque)

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return Session(self.trust, self.allow_packages)

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        return patience(path, trust=self.trust, only_read=True)


def _warn_if_opaque(graph: GraphDigest) -> None:
    if graph.opaque:
        first = graph.opaque[0] if len(graph.opaque) == 1 else f"{graph.opaque[0]} and others"
        tell(
            f"note: {graph.source}: holds what cannot be compared by value ({first}); "
            "its digest is good for this process only"
        )
