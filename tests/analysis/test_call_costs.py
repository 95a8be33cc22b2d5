"""The arithmetic that a call takes, counted by hand."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph

from scanopt_cli.analysis.call_costs import operations
from scanopt_cli.analysis.statistics import statistics
from support.graph_building import graph_of, scan

X, V, W, M = pt.dscalar("x"), pt.dvector("v"), pt.dvector("w"), pt.dmatrix("m")
N = pt.lscalar("n")


def looped(x: Variable, steps: Any) -> Any:
    """Two operations a step."""
    return scan(lambda y: pt.tanh(y * 2.0), outputs_info=[x], n_steps=steps)[-1]


def nested(matrix: Any) -> Any:
    """For each row one operation for each entry, one of its own, and one for the length."""
    return scan(
        lambda row: scan(lambda v, y: y + v, sequences=[row], outputs_info=[X])[-1] * X,
        sequences=[matrix],
    )


CASES = {
    "a number": (X * 2 + 1, 2),
    "rows": (pt.exp(V) * 2, 200),
    "a sum reads all": (M.sum(), 10_000),
    "a product": (M @ V, 10_000),
    "what moves is free": (pt.concatenate([V, W])[::-1], 0),
    "known steps": (looped(X, 5), 10),
    "steps": (looped(X, N), 200),
    "loops in loops": (nested(M), 100 * 102),
}


@pytest.mark.parametrize("name", CASES)
def test_by_hand(name: str) -> None:
    output, wanted = CASES[name]
    found = operations(graph_of(output).fgraph).at(100)
    # Lengths and indices are computed, too.
    assert wanted <= found <= wanted + 10


def test_a_graph_in_a_graph_counts_as_what_it_holds() -> None:
    inside = OpFromGraph([V], [pt.exp(V) * 2])
    text = str(operations(graph_of(inside(W)).fgraph))
    assert text == "2*w.shape[0]"


def test_a_batch_of_loops_runs_each_of_them() -> None:
    starts = pt.dvector("starts")
    (batch,) = vectorize_graph([looped(X, 5)], {X: starts})
    assert operations(graph_of(batch).fgraph).at(100) >= 1_000


def test_buffers_of_inner_loops_have_the_names_around_them() -> None:
    assert "?" not in statistics(graph_of(nested(M)).fgraph).buffer_bytes
    assert "m.shape[1]" in statistics(graph_of(nested(M)).fgraph).buffer_bytes


def test_a_variable_without_a_name_is_the_expression_that_makes_it() -> None:
    rows = scan(lambda v, y: y + v, sequences=[pt.exp(V)[1:]], outputs_info=[X])
    text = statistics(graph_of(rows).fgraph).buffer_bytes
    assert "?" not in text
