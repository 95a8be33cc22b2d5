"""The child process that runs passes: one that crashes, or takes all memory, ends only this.

It records each pass before it runs, and keeps the graph after each pass that changed it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from scanopt_cli.errors import brief
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.optimizing import settle
from scanopt_cli.pipeline.runner import PipelineRunner
from scanopt_cli.remarks import Code, Remark
from scanopt_cli.serialization.payload import decode, encode
from scanopt_cli.verification.child_process import limit_process, read_request

RECORD = "passes.jsonl"
_RESULT = "result.pkl"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRequest:
    """What the child runs.

    Attributes
    ----------
    tables
        The graph, as `tables_of` writes it.
    passes
        The pipeline, or the one pass.
    is_pipeline
        Whether they are run as `optimize` runs them; else once, with a limit.
    limit
        The most rewrites of one pass.
    strict
        Whether an error of a pass is raised; else what it works on stays as it is, if it is one of
        scanopt's.
    timeout, memory
        Seconds of processor time, and bytes of address space.
    """

    tables: dict[str, Any]
    passes: tuple[Pass, ...]
    is_pipeline: bool
    limit: int | None
    strict: bool
    timeout: float
    memory: int


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass made of a graph: how many rewrites it applied, and its remarks on them."""

    tables: dict[str, Any]
    rewrites: int
    remarks: tuple[Remark, ...]


def tables_of(graph: Graph) -> dict[str, Any]:
    """Return a graph without its recorded calls as the tables that files hold."""
    return encode(Graph(fgraph=graph.fgraph), keep_traces=True, cut_names=True)


def snapshot_path(directory: Path, number: int) -> Path:
    """Return where the graph after the ``number``-th change is."""
    return directory / f"{number:06}.pkl"


def result_of(directory: Path) -> PassResult:
    """Return what the child made, once it has ended well."""
    found: PassResult = read(directory / _RESULT)
    return found


def main(directory: str) -> None:
    """Run the request in ``directory``, and write what came of it there."""
    request: PassRequest = read_request(directory)
    limit_process(request.timeout, request.memory)
    graph = decode(request.tables, "the request")
    with (Path(directory) / RECORD).open("w") as file:

        def write(kind: str, what: str) -> None:
            file.write(json.dumps([kind, what]) + "\n")
            file.flush()

        try:
            with bounded_folding():
                run = _run_pipeline if request.is_pipeline else _run_pass
                run(request, graph, Path(directory), write)
        except Exception as error:  # what the parent is told is all that it needs to know
            write("failed", brief(error))
        else:
            write("done", "")


def _run_pipeline(
    request: PassRequest, graph: Graph, directory: Path, write: Callable[[str, str], None]
) -> None:
    made: list[str] = []

    def keep(name: str, after: Graph) -> None:
        made.append(name)
        _write(snapshot_path(directory, len(made)), tables_of(after))
        write("changed", name)

    runs = settle(
        graph,
        request.passes,
        watch=lambda snapshot: keep(snapshot.pass_name, snapshot.graph),
        begin=lambda item: write("begin", item.name),
        strict=request.strict or None,  # SCANOPT_STRICT may say so as well
    )
    for remark in (remark for run in runs for remark in run.remarks):
        if remark.code is Code.PASS_FAILED:
            write("left", f"{remark.pass_name}: {remark.details['error']}")
    # The last turn may lead back to a smaller graph that came before.
    keep("optimize", graph)


def _run_pass(
    request: PassRequest, graph: Graph, directory: Path, write: Callable[[str, str], None]
) -> None:
    write("begin", request.passes[0].name)
    runner = PipelineRunner(request.passes, limit=request.limit, strict=request.strict or None)
    (run,) = runner.run(graph.fgraph, rounds=1)
    _write(directory / _RESULT, PassResult(tables_of(graph), run.rewrites, run.remarks))


def _write(path: Path, what: object) -> None:
    with path.open("wb") as file:
        cloudpickle.dump(what, file)


def read(path: Path) -> Any:
    """Return what the child kept: the tables of a graph, or a result."""
    with path.open("rb") as file:
        return pickle.load(file)


def entries(directory: Path) -> Sequence[tuple[str, str]]:
    """Return what the child has recorded."""
    path = directory / RECORD
    lines = path.read_text().splitlines() if path.exists() else []
    return [(kind, what) for kind, what in map(json.loads, lines)]
