"""`optimize`: a pipeline run on a copy of a graph, and the record of what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.provenance.locating import locate
from scanopt_cli.analysis.same_draws import same_draws
from scanopt_cli.analysis.statistics import Statistics, statistics
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import (
    Graph,
    GraphLike,
    as_graph,
    copy_nodes,
    loaded_graph,
    replace_outputs,
)
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.driver import PipelineMemory, n_nodes, smallest
from scanopt_cli.pipeline.grammar import as_passes, parse, print_pipeline
from scanopt_cli.pipeline.runner import PassRun, PipelineRunner
from scanopt_cli.presentation import Presented
from scanopt_cli.remarks import Remark
from scanopt_cli.verification.modes import DEFAULT
from scanopt_cli.verification.result import Verification
from scanopt_cli.verification.verifying import verify as verify_graphs

_COMPILE_SAFE = "compile-safe"
# How often `compile-safe` and the other passes may enable each other.
_MOST_TURNS = 8


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The graph as it was right after a pass changed it, and what the pass says of that.

    ``seconds`` is how long this run of the pass took, by the clock.
    """

    pass_name: str
    graph: Graph
    remarks: tuple[Remark, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OptimizeResult(Presented):
    """What `optimize` did.

    Attributes
    ----------
    graph
        The optimised graph; the argument is as it was.
    changed
        Whether the result computes otherwise than the argument, or has more or fewer nodes.
    before, after
        Statistics of the graph before and after.
    pipeline
        The passes that ran, as `scanopt_cli.pipeline.grammar.parse` reads them.
    passes
        What each pass did, in order; a pass that is listed twice has two entries. `compile-safe` is
        the last entry if it changed anything.
    warnings
        Likely mistakes in the graph: loops of which every step draws the same random numbers.
    verification
        The comparison with the original, if it was requested.
    """

    graph: Graph = field(metadata={"as_json": False})
    changed: bool
    before: Statistics
    after: Statistics
    pipeline: str
    passes: tuple[PassRun, ...]
    warnings: tuple[Remark, ...] = ()
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
    ``passes``, unless there are none. Both are repeated until the graph takes a form that it had
    before, so optimizing a result again by the same ``passes`` leaves it as it is.

    Parameters
    ----------
    graph
        A loaded graph, the path of its file, a FunctionGraph or an ``(inputs, outputs)`` pair. It
        is left as it was.
    passes
        A pipeline as text (``"remove-unused,save-mem{prealloc=true}"``), a preset, or passes.
    verify
        Whether to evaluate the result against the original on random inputs, in a child process.
    modes
        The modes in which the verification compiles the result, see `scanopt_cli.verify`.
    limit
        Stop ``passes`` after this many rewrites, so that bisection finds a wrong one. They are not
        repeated then.
    watch
        Called with the graph after each pass that changed it.
    progress
        Called with a few words on what the verification is doing.

    Raises
    ------
    PassError
        If the pipeline is malformed, or a pass broke its contract.
    ScanoptError
        If ``graph`` is no graph, or its file cannot be loaded.
    """
    sequence = as_passes(passes)
    graph = loaded_graph(graph)
    work = as_graph(graph)
    locate(work.fgraph)
    before = statistics(work.fgraph)
    original, warnings = copy_nodes(work.fgraph), same_draws(work.fgraph)
    runs = settle(work, sequence, limit=limit, watch=watch) if sequence else ()
    after = statistics(work.fgraph)
    is_same = is_same_form(original, work.fgraph)
    if is_same:  # one pass may have undone another
        runs = tuple(replace(run, changed=False) for run in runs)
    return OptimizeResult(
        graph=work,
        changed=not is_same,
        before=before,
        after=after,
        pipeline=print_pipeline(sequence),
        passes=tuple(run for run in runs if run.changed or run.name != _COMPILE_SAFE),
        warnings=warnings,
        verification=verify_graphs(graph, work, modes=modes, progress=progress) if verify else None,
    )


@bounded_folding()
def compile_safe(graph: Graph) -> Graph:
    """Return a copy of ``graph`` that PyTensor compiles right, as `optimize` leaves its results."""
    work = graph.copy()
    locate(work.fgraph)
    _compile_safe_runner(PipelineMemory()).run(work.fgraph)
    return work


def settle(
    work: Graph,
    passes: Sequence[Pass],
    *,
    limit: int | None = None,
    watch: Callable[[Snapshot], None] | None = None,
    begin: Callable[[Pass], None] | None = None,
    strict: bool | None = None,
) -> tuple[PassRun, ...]:
    """Run ``passes`` and `compile-safe` on ``work`` until it takes a form that it had before.

    ``begin`` is called before each run of a pass, and ``watch`` after each that changed the graph.
    With ``strict``, an error of a pass is raised; SCANOPT_STRICT decides if it is not given.

    `compile-safe` is not in one pipeline with the others, since `simplify` would undo its rewrites
    in every round; but these may enable others, and so may a later phase an earlier one. Of the
    graphs that lead back to one another, the smallest is the result, whichever ``work`` was.
    """
    memory = PipelineMemory()
    runner = PipelineRunner(passes, limit=limit, strict=strict, memory=memory)
    safe = _compile_safe_runner(memory)
    has_phases = any(item.starts_phase for item in passes)
    forms = {memory.form_of(work.fgraph): copy_nodes(work.fgraph)}
    made_safe: dict[str, str] = {}
    runs: tuple[PassRun, ...] = ()
    while True:
        snapshots: list[Snapshot] = []
        # What the first runs do is shown at once, in case one of them never ends. Of later turns,
        # one that leads back to a known form is not reported.
        later = snapshots.append if runs and watch is not None else watch
        more = _run_once(work, runner, later, begin)
        settled = memory.form_of(work.fgraph)
        if settled in made_safe:  # so the form recurs, and this is the last turn
            replace_outputs(work.fgraph, forms[made_safe[settled]])
        else:
            more += _run_once(work, safe, later, begin)
            made_safe[settled] = memory.form_of(work.fgraph)
        form = made_safe[settled]
        recurs = form in forms
        if not (runs and recurs):
            runs = _joined(runs, more)
            if watch is not None:
                for snapshot in snapshots:
                    watch(snapshot)
        if recurs:
            kept = smallest(forms, form)
            if kept != form:
                replace_outputs(work.fgraph, forms[kept])
            return runs
        is_changed_for_safety = more[-1].changed
        may_go_on = has_phases or is_changed_for_safety
        if limit is not None or not may_go_on or len(forms) > _MOST_TURNS:
            return runs
        forms[form] = copy_nodes(work.fgraph)


def _run_once(
    work: Graph,
    runner: PipelineRunner,
    watch: Callable[[Snapshot], None] | None,
    begin: Callable[[Pass], None] | None,
) -> tuple[PassRun, ...]:
    def watched(item: Pass, _: object, remarks: Sequence[Remark], seconds: float) -> None:
        if watch is not None:
            watch(Snapshot(item.name, work.copy(), tuple(remarks), seconds))

    return runner.run(work.fgraph, watch=watched, begin=begin)


def is_same_form(one: FunctionGraph, other: FunctionGraph) -> bool:
    """Whether two graphs compute the same with equally many nodes."""
    sameness = Sameness()
    return n_nodes(one) == n_nodes(other) and sameness.of_graph(one) == sameness.of_graph(other)


def _compile_safe_runner(memory: PipelineMemory) -> PipelineRunner:
    """Return what runs `compile-safe`; PyTensor would compile some graphs wrongly if it failed."""
    return PipelineRunner(parse(_COMPILE_SAFE), strict=True, memory=memory)


def _joined(first: Sequence[PassRun], more: Sequence[PassRun]) -> tuple[PassRun, ...]:
    """Return the record of the same passes that ran twice."""
    return tuple(map(PassRun.joined, first, more)) if first else tuple(more)
