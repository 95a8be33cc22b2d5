"""Run passes on a graph that PyTensor is compiling."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from weakref import ref

from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from scanopt_cli.analysis.provenance.locating import locate
from scanopt_cli.analysis.same_draws import same_draws, told
from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.environment import STRICT
from scanopt_cli.errors import PassError
from scanopt_cli.integration.compilation.blocks import DEFAULT, Compilation, Enabled
from scanopt_cli.integration.compilation.compilation_stages import CompilationStage
from scanopt_cli.integration.compilation.compiled_function import compiled_function
from scanopt_cli.integration.compilation.left_loops import left_loops
from scanopt_cli.integration.compilation.sealing import seal
from scanopt_cli.integration.compilation.stage_passes import passes_of
from scanopt_cli.ir.graph import copy_nodes
from scanopt_cli.ir.inner_graphs import inner_graphs, walk
from scanopt_cli.ir.scan_view import scan_op
from scanopt_cli.loop import TracedLoop
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import PassRun, run_pipeline
from scanopt_cli.remarks import RemarkKind

# A third round would find little, and PyTensor finds most of that too. It would take as long as
# the second, in a compilation that a user waits for.
_ROUNDS = 2
type _Rounds = set[tuple[CompilationStage, tuple[Pass, ...]]]

# By the identities of Ops of loops in bodies, the stages and pipelines that rewrote them. PyTensor
# compiles each body as a graph of its own, which the passes have rewritten with the graph around
# it. An equal Op of another graph may have other readers, and is a loop that is not done.
_done: dict[int, tuple[ref[Op], _Rounds]] = {}
_logger = logging.getLogger("scanopt_cli.compiling")


def run_stage(
    fgraph: FunctionGraph,
    stage: CompilationStage,
    block: Enabled | None,
    mode: Mode | None,
    *,
    seals: bool,
) -> None:
    """Run one stage of the passes of ``block`` on ``fgraph``, if there is a loop in it.

    Without a block, the passes are those of the preset `DEFAULT`. If it ``seals``, the loops are
    sealed after the first stage: PyTensor's own rewrites of loops see none until the second.

    The passes work on a copy of the nodes over the same inputs. The outputs of the copy then
    replace the old ones in one step. So PyTensor validates that no protected input is overwritten,
    updates stay with their outputs, and after an error the graph is unchanged.

    Raises
    ------
    PassError
        If a pass breaks its contract. PyTensor handles it.
    """
    pipeline = block.passes if block is not None else parse(DEFAULT)
    passes = passes_of(stage, pipeline, mode)
    if not passes or not any(_is_rewritten(node) for node in walk(fgraph)):
        return
    if not _is_done(fgraph, stage, pipeline):
        _run_passes(fgraph, stage, passes, pipeline, block)
    if stage is CompilationStage.LOOPS and seals:
        seal(fgraph)


def _is_rewritten(node: Apply) -> bool:
    """Whether a node is a loop that passes rewrite: a Scan, or a loop that is not lowered yet."""
    return scan_op(node) is not None or isinstance(node.op, TracedLoop)


def _is_done(fgraph: FunctionGraph, stage: CompilationStage, pipeline: tuple[Pass, ...]) -> bool:
    """Whether the loops of ``fgraph`` went through the stage before, in another loop's body."""
    return all(
        (stage, pipeline) in _rounds_of(node.op)
        for node in fgraph.apply_nodes
        if _is_rewritten(node)
    )


def _rounds_of(op: Op) -> _Rounds:
    """Return the stages and pipelines that rewrote an Op in a body, to read and to add to."""
    key = id(op)
    if key not in _done:
        _done[key] = ref(op, lambda _: _done.pop(key, None)), set()
    return _done[key][1]


def _run_passes(
    fgraph: FunctionGraph,
    stage: CompilationStage,
    passes: Sequence[Pass],
    pipeline: tuple[Pass, ...],
    block: Enabled | None,
) -> None:
    begin = perf_counter()
    if block is not None and block.progress is not None:
        block.progress.doing(str(compiled_function(fgraph)), "scanopt's passes")
    work = _copy(fgraph)
    if stage is CompilationStage.LOOPS:
        locate(work)  # the nodes that passes make have no stack
    before = statistics(work)
    # A later stage has the loops of the first.
    found = same_draws(work) if stage is CompilationStage.LOOPS else ()
    for remark in found:
        warnings.warn(f"scanopt: {told(remark)}", stacklevel=2)
    try:
        runs = run_pipeline(work, passes, rounds=_ROUNDS, strict=True)
    except AssertionError as error:  # PyTensor handles all errors of a rewriter but this one
        raise PassError(f"a pass failed: {error!r}") from error
    has_changed = any(run.changed for run in runs)
    if has_changed:
        pairs = zip(fgraph.outputs, work.outputs, strict=True)
        fgraph.replace_all_validate([(old, new) for old, new in pairs if old is not new], "scanopt")
    done = Compilation(
        before=before,
        after=statistics(work) if has_changed else before,
        passes=runs,
        seconds=perf_counter() - begin,
        warnings=found,
    )
    if block is not None:
        block.record(fgraph, _described(done, fgraph, work, is_known=block.knows(fgraph)))
    if has_changed or found:
        _logger.info(
            "%s: %d Scans to %d, nodes inside %d to %d, in %.2f s",
            stage,
            before.scans,
            done.after.scans,
            before.inner_nodes,
            done.after.inner_nodes,
            done.seconds,
        )
    _log_remarks(runs)
    # Loops in a body that went through this stage count as done for the earlier ones too.
    stages = list(CompilationStage)
    reached = {(passed, pipeline) for passed in stages[: stages.index(stage) + 1]}
    for body in (inner for node in fgraph.apply_nodes for inner in inner_graphs(node.op)):
        for node in walk(body):
            if _is_rewritten(node):
                _rounds_of(node.op).update(reached)


def _described(
    done: Compilation, fgraph: FunctionGraph, work: FunctionGraph, *, is_known: bool
) -> Compilation:
    """Return ``done`` with the loops that are left, and the function, unless that is known.

    A compilation does not fail for what is only shown.
    """
    try:
        done = replace(done, left=tuple(left_loops(work)))
        return done if is_known else replace(done, **compiled_function(fgraph)._asdict())
    except Exception:
        if os.environ.get(STRICT):
            raise
        _logger.warning("what is left in the loops is not known", exc_info=True)
        return done


def _copy(fgraph: FunctionGraph) -> FunctionGraph:
    """Return a graph with its own nodes over the inputs of ``fgraph``, for the same mode."""
    work = copy_nodes(fgraph)
    mode = getattr(fgraph, "_compile_mode", None)
    if mode is not None:
        work._compile_mode = mode  # type: ignore[attr-defined]
    return work


def _log_remarks(runs: tuple[PassRun, ...]) -> None:
    for run in runs:
        for remark in run.remarks:
            level = logging.INFO if remark.kind is RemarkKind.PASSED else logging.DEBUG
            facts = {**remark.details, "slots": remark.slots, "reason": remark.reason}
            _logger.log(level, "%s: %s: %s %s", run.name, remark.scan, remark.code, facts)
