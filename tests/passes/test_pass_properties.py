"""What must hold for every pass on every graph: values, idempotence, integrity, signature."""

from __future__ import annotations

import numpy as np
from hypothesis import given, note, reject
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import PassError
from scanopt_cli.ir.graph import from_io
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import PassRun, run_pipeline
from scanopt_cli.reports.remark_text import text_of
from support.evaluating import Outcome, assert_same_outcomes, evaluator, has_unknown_shape
from support.generated.strategies import GeneratedScan, scan_graphs

# What a pipeline may turn into a value, beside what `remove-unused` loses: the errors of what
# nobody reads, the check that a sequence is long enough too. Everything else raises as before.
PIPELINES: dict[str, tuple[type[Exception], ...]] = {
    "remove-unused": (Exception,),
    "inline-constants": (),
    "fold-loops": (),
    "drop-taps": (),
    "merge-equal": (),
    "merge-scans": (),
    "merge-duplicates": (),
    "merge-states": (),
    "simplify{outer=true}": (Exception,),
    "mit-mot-to-sit-sot": (),
    "clean-slices": (Exception,),
    "push-out-sums": (),
    "push-out-batches": (),
    "push-out-products": (),
    "push-out": (),
    "factor-once": (),
    "hoist-states": (),
    "split-states": (),
    "widen-integers": (),
    "loops-to-ops": (ValueError,),
    "share-factors": (),
    "remove-zeros": (ValueError,),
    "trim-steps": (Exception,),
    "normalize-reads,peel-first-step,trim-steps,save-mem": (Exception,),
    "save-mem": (),
    "guard-last-rows": (),
    "initial-rows-alone": (),
    "merge-equal,safe-branches": (),
    "stable-log-sums": (),
    "match-precision{exact=false}": (),
    "clean-ofg": (Exception,),
    "inline-ofg": (Exception,),
    "normalize-reads,carry-reductions,save-mem": (Exception,),
    "default": (Exception,),
}
# As for PyTensor, x * 0 is 0, so what was NaN may be a number.
NAN_LOST = ("simplify{outer=true}", "remove-zeros")
# They compute outside what no step changes, or whole rows, whose shape is known where no step runs.
SHAPES_FOUND = ("loops-to-ops", "hoist-states", "default")
if not config.scan__allow_output_prealloc:
    # Its results are only right where steps are not written in place, which is settled at start.
    PIPELINES = {"save-mem{prealloc=false}": ()}


def passed_through(pipeline: str, fgraph: FunctionGraph) -> tuple[PassRun, ...]:
    try:
        return run_pipeline(fgraph, parse(pipeline))
    except PassError as error:
        if "PyTensor confuses" not in str(error):
            raise
        reject()  # PyTensor still keeps an equal body of an earlier example, with the other zero


def without_unread_errors(old: Outcome, pruned: Outcome) -> Outcome:
    """Return the value ``pruned`` where the error ``old`` is of something that nobody reads."""
    lost = isinstance(old, Exception) and not isinstance(pruned, Exception)
    return pruned if lost else old


def nan_as_in(new: Outcome, old: Outcome) -> Outcome:
    """Return ``old`` with the values of ``new`` where it is NaN, if their shapes are equal."""
    arrays = isinstance(old, np.ndarray) and isinstance(new, np.ndarray)
    return np.where(np.isnan(old), new, old) if arrays and old.shape == new.shape else old


@given(generated=scan_graphs())
def test_passes_keep_values_and_settle(generated: GeneratedScan) -> None:
    """Each program is evaluated once as it is, then as each pipeline leaves it."""
    graph = from_io(generated.inputs, generated.outputs)
    expected = evaluator(graph.inputs, graph.outputs)
    outcomes = [expected(arguments) for arguments in generated.arguments]
    original = digest(graph.fgraph)
    pruned = outcomes
    for pipeline, lost in PIPELINES.items():
        note(pipeline)
        work = graph.copy()
        types = [variable.type for variable in work.inputs]
        for run in passed_through(pipeline, work.fgraph):
            for remark in run.remarks:
                note(f"{remark.pass_name}: {remark.kind} {remark.scan}: {text_of(remark)}")
        work.fgraph.check_integrity()
        assert [variable.type for variable in work.inputs] == types
        before = digest(work.fgraph)
        if before == original:
            continue
        actual = evaluator(work.inputs, work.outputs)
        results = [actual(arguments) for arguments in generated.arguments]
        if pipeline == "remove-unused":
            pruned = results
        for got, olds, read in zip(results, outcomes, pruned, strict=True):
            # Where any error may be lost, another one may come in its place.
            refined = [
                new
                if (isinstance(old, lost) and (Exception in lost or not isinstance(new, Exception)))
                or (pipeline in SHAPES_FOUND and has_unknown_shape(old, new))
                else (old if isinstance(new, Exception) else without_unread_errors(old, kept))
                for old, new, kept in zip(olds, got, read, strict=True)
            ]
            if pipeline in NAN_LOST:
                refined = [nan_as_in(new, old) for old, new in zip(refined, got, strict=True)]
            assert_same_outcomes(refined, got)
        again = passed_through(pipeline, work.fgraph)
        assert not any(run.changed for run in again)
        assert digest(work.fgraph) == before
