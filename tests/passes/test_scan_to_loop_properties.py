"""Generated Scans as loops, after the passes for loops, and as Scans again compute the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given, note
from test_pass_properties import passed_through

from evaluating import assert_same_outcomes, evaluator
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import from_io
from strategies import GeneratedScan, scan_graphs


def has_unknown_shape(old: object, new: object) -> bool:
    """Whether a Scan of no steps, or a sum of it, has lengths 0 where a loop knows them."""
    if not isinstance(old, np.ndarray) or not isinstance(new, np.ndarray):
        return False
    if old.ndim != new.ndim or old.shape == new.shape:
        return False
    return all(length in (0, known) for length, known in zip(old.shape, new.shape, strict=True))


PIPELINES = (
    "scan-to-loop",
    "scan-to-loop,trace-to-last,constant-states,remove-unused,merge-states,inline-constants",
    "scan-to-loop,loop-to-scan",
    "scan-to-loop,trace-to-last,unroll-small",
    "scan-to-loop,unroll-small{size=9},loop-to-scan",
)


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
