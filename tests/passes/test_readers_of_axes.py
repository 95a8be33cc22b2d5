"""What is read of several axes of traces stays, whatever pass changes loops or reads of them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, note, settings
from hypothesis import strategies as st

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import from_io
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from support.axis_readers import ReadTraces, read_traces
from support.evaluating import Outcome, assert_same_outcomes, evaluator, has_unknown_shape
from support.tiers import examples

# One after the other, where a name is a sequence.
PIPELINES: tuple[tuple[str, ...], ...] = (
    ("default",),
    ("grad",),
    ("loop",),
    ("trim-steps",),
    ("clean-slices",),
    ("normalize-reads",),
    ("save-mem",),
    ("clean-slices,normalize-reads,trim-steps,save-mem",),
    ("normalize-reads,carry-reductions,save-mem",),
    ("peel-first-step",),
    ("guard-last-rows",),
    ("hoist-states",),
    ("merge-scans",),
    ("inline-constants",),
    ("fold-loops",),
    ("drop-taps",),
    ("remove-zeros",),
    ("push-out",),
    ("push-out-sums",),
    ("push-out-products",),
    ("mit-mot-to-sit-sot",),
    ("initial-rows-alone",),
    ("compile-safe",),
    ("simplify{outer=true}",),
    ("merge-equal,merge-duplicates,merge-states",),
    ("scan-to-loop",),
    ("scan-to-loop,trim-steps",),
    ("scan-to-loop,normalize-reads,trim-steps",),
    ("scan-to-loop,clean-slices",),
    ("scan-to-loop,trace-to-last",),
    ("scan-to-loop,clean-slices,normalize-reads,trace-to-last,remove-unused",),
    ("scan-to-loop,hoist-states",),
    ("scan-to-loop,push-out",),
    ("scan-to-loop,peel-first-step",),
    ("scan-to-loop,merge-scans",),
    ("scan-to-loop,keep-values",),
    ("scan-to-loop,unroll-loops,unroll-small{always=true}",),
    ("scan-to-loop", "loop-to-scan"),
    ("scan-to-loop", "loop-to-scan", "grad"),
    ("loop", "loop-to-scan"),
)


@settings(max_examples=examples(6, 300))
@given(traces=read_traces(), some=st.lists(st.sampled_from(PIPELINES), min_size=4, max_size=4))
def test_readers_of_all_axes(traces: ReadTraces, some: Sequence[tuple[str, ...]]) -> None:
    graph = from_io(traces.inputs, traces.outputs)
    expected = evaluator(graph.inputs, graph.outputs)
    outcomes = [expected(arguments) for arguments in traces.arguments]
    original = digest(graph.fgraph)
    for pipelines in some:
        note(" | ".join(pipelines))
        work = graph.copy()
        for pipeline in pipelines:
            run_pipeline(work.fgraph, parse(pipeline))
        if digest(work.fgraph) == original:
            continue
        actual = evaluator(work.inputs, work.outputs)
        for arguments, olds in zip(traces.arguments, outcomes, strict=True):
            note(f"n, k, j = {arguments[3:]}, width {len(arguments[1])}")
            got = actual(arguments)
            runs = all(arguments[3:5])
            refined = [
                new if _may_differ(old, new, runs) else old
                for old, new in zip(olds, got, strict=True)
            ]
            assert_same_outcomes(refined, got)


def _may_differ(old: Outcome, new: Outcome, runs: bool) -> bool:
    """Whether an error of what nobody reads is lost, or a loop of no steps has another shape.

    The rows of a Scan of no steps have length 0, also where its type says otherwise. What rewrites
    make of the type may raise.
    """
    if isinstance(old, Exception):
        return True
    if runs or old.size:
        return has_unknown_shape(old, new)
    return isinstance(new, Exception) or not new.size or has_unknown_shape(old, new)
