"""Generated Scans as loops, after the passes for loops, and as Scans again compute the same."""

from __future__ import annotations

from hypothesis import given, note, settings
from test_pass_properties import passed_through

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import from_io
from support.evaluating import assert_same_outcomes, evaluator, has_unknown_shape
from support.generated.strategies import GeneratedScan, scan_graphs
from support.tiers import examples

PIPELINES = (
    "scan-to-loop",
    "scan-to-loop,trace-to-last,hoist-states,remove-unused,merge-states,inline-constants",
    "scan-to-loop,fold-loops",
    "drop-taps,scan-to-loop",
    "scan-to-loop,split-states",
    "scan-to-loop,stop-at-fixed-point{tolerance=0}",
    "scan-to-loop,loop-to-scan",
    "scan-to-loop,trace-to-last,unroll-small{always=true}",
    "scan-to-loop,unroll-small{always=true},loop-to-scan",
    "scan-to-loop,unroll-small{size=9},loop-to-scan",
)


@settings(max_examples=examples(6, 100))
@given(generated=scan_graphs())
def test_loops_keep_values(generated: GeneratedScan) -> None:
    graph = from_io(generated.inputs, generated.outputs)
    expected = evaluator(graph.inputs, graph.outputs)
    outcomes = [expected(arguments) for arguments in generated.arguments]
    for pipeline in PIPELINES:
        note(pipeline)
        work = graph.copy()
        for step in pipeline.split(","):
            passed_through(step, work.fgraph)
        work.fgraph.check_integrity()
        actual = evaluator(work.inputs, work.outputs)
        for arguments, olds in zip(generated.arguments, outcomes, strict=True):
            note(str(arguments))
            got = actual(arguments)
            # A Scan may raise where a sequence is too short, and no step needs the row.
            wanted = [
                new if isinstance(old, Exception) or has_unknown_shape(old, new) else old
                for old, new in zip(olds, got, strict=True)
            ]
            assert_same_outcomes(wanted, got)
        before = digest(work.fgraph)
        passed_through(pipeline.split(",")[-1], work.fgraph)
        assert digest(work.fgraph) == before
