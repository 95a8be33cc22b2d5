"""`scan-to-loop` on generated Scans: the loops compute the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given, note
from test_pass_properties import passed_through

from evaluating import assert_same_outcomes, evaluator
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import from_io
from strategies import GeneratedScan, scan_graphs


def has_unknown_shape(old: object, new: object) -> bool:
    """Whether a Scan of no steps returned zeros for the lengths that a loop knows."""
    if not isinstance(old, np.ndarray) or not isinstance(new, np.ndarray):
        return False
    return old.ndim == new.ndim and not any(old.shape) and new.shape[:1] == (0,)


@given(generated=scan_graphs())
def test_loops_keep_values(generated: GeneratedScan) -> None:
    graph = from_io(generated.inputs, generated.outputs)
    expected = evaluator(graph.inputs, graph.outputs)
    work = graph.copy()
    passed_through("scan-to-loop", work.fgraph)
    work.fgraph.check_integrity()
    actual = evaluator(work.inputs, work.outputs)
    for arguments in generated.arguments:
        note(str(arguments))
        got = actual(arguments)
        # A Scan may raise where a sequence is too short, and no step needs the row.
        wanted = [
            new if isinstance(old, Exception) or has_unknown_shape(old, new) else old
            for old, new in zip(expected(arguments), got, strict=True)
        ]
        assert_same_outcomes(wanted, got)
    before = digest(work.fgraph)
    passed_through("scan-to-loop", work.fgraph)
    assert digest(work.fgraph) == before
