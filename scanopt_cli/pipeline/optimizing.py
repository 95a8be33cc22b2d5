"""`optimize`: a pipeline run on a copy of a graph, and the record of what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from scanopt_cli.analysis.statistics import Statistics, statistics
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.grammar import as_passes, print_pipeline
from scanopt_cli.pipeline.registry import registry
from scanopt_cli.pipeline.runner import PassRun, run_pipeline
from scanopt_cli.verification.modes import DEFAULT
from scanopt_cli.verification.result import Verification
from scanopt_cli.verification.verifying import verify as verify_graphs


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The graph as it was right after a pass changed it."""

    pass_name: str
    graph: Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeResult:
    """What `optimize` did.

    Attributes
    ----------
    graph
        The optimised graph; the argument is as it was.
    changed
        Whether anything was rewritten.
    before, after
        Statistics of the graph before and after.
    pipeline
        The passes that ran, as `scanopt_cli.pipeline.grammar.parse` reads them.
    passes
        What each pass did, in order; a pass that is listed twice has two entries. `compile-safe` is
        the last entry if it changed anything.
    verification
        The comparison with the original, if it was requested.
    """

    graph: Graph = field(metadata={"as_json": False})
    changed: bool
    before: Statistics
    after: Statistics
    pipeline: str
    passes: tuple[PassRun, ...]
    verification: Verification | None = None


@bounded_folding()
def optimize(
    graph: GraphLike,
    passes: str | Sequence[Pass] = "default",
    *,
    verify: bool = False,
    modes: str | Sequence[str] = DEFAULT,
    limit: int | None = None,
    watch: Callable[[Snapshot], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> OptimizeResult:
    """Run ``passes`` on a copy of ``graph``, and then `compile-safe`.

    `compile-safe` brings the result into forms that PyTensor compiles correctly. It runs after any
    ``passes``, unless there are none.

    Parameters
    ----------
    graph
        A loaded graph, a FunctionGraph or an ``(inputs, outputs)`` pair. It is left as it was.
    passes
        A pipeline as text (``"remove-unused,save-mem{prealloc=true}"``), a preset, or passes.
    verify
        Whether to evaluate the result against the original on random inputs, in a child process.
    modes
        The modes in which the verification compiles the result, see `scanopt_cli.verify`.
    limit
        Stop ``passes`` after this many rewrites, so that bisection finds a wrong one.
    watch
        Called with the graph after each pass that changed it.
    progress
        Called with a few words on what the verification is doing.

    Raises
    ------
    PassError
        If the pipeline is malformed, or a pass broke its contract.
    ScanoptError
        If ``graph`` is no graph.
    """
    sequence = as_passes(passes)
    work = as_graph(graph)
    before = statistics(work.fgraph)

    def watched(item: Pass, _: object) -> None:
        if watch is not None:
            watch(Snapshot(item.name, work.copy()))

    digest_before = digest(work.fgraph)
    runs = run_pipeline(work.fgraph, sequence, limit=limit, watch=watched)
    if sequence:
        # Not in one pipeline with the others: `simplify` would undo its rewrites in every round.
        # PyTensor would compile some graphs wrongly if it failed, so an error of it is the user's.
        safe = [registry()["compile-safe"]()]
        last = run_pipeline(work.fgraph, safe, strict=True, watch=watched)
        runs += tuple(run for run in last if run.changed)
    after = statistics(work.fgraph)
    # The passes may only have merged equal constants, or the last may have undone the others.
    is_same = after == before and digest(work.fgraph) == digest_before
    return OptimizeResult(
        graph=work,
        changed=any(run.changed for run in runs) and not is_same,
        before=before,
        after=after,
        pipeline=print_pipeline(sequence),
        passes=runs,
        verification=verify_graphs(graph, work, modes=modes, progress=progress) if verify else None,
    )
