"""Step counts: which are told to be equal, and how equal ones become one variable."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.passes.merge_scans.trip_counts import StepCounts, loop_free
from support.graph_building import scan

N, M = pt.lscalars("n", "m")
U = pt.scalar("u", dtype="uint8")
COLUMN = pt.tensor("column", dtype="int64", shape=(3, 1))
S, T, R = pt.dvectors("s", "t", "r")


def _least(*sequences: Any) -> Any:
    first, *others = (sequence.shape[0] for sequence in sequences)
    for other in others:
        first = pt.minimum(first, other)
    return first


def _counts(*outputs: Any) -> tuple[FunctionGraph, StepCounts]:
    fgraph = FunctionGraph(outputs=list(outputs), clone=False)
    digests = Digests(fgraph.inputs, Sameness(exact=True))
    return fgraph, StepCounts(digests.of, loop_free(fgraph.toposort()))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (N, N + 0),
        (N + M, M + N),
        (2 * N + 1 - N, N + 1),
        (pt.constant(4, dtype="int8"), pt.constant(4)),
        (S.shape[0], pt.exp(S).shape[0]),
        (_least(S, T), _least(T, S)),
        (_least(S, T, R), _least(R, S, pt.exp(T))),
        (_least(S, T) - 1, _least(T, S) - 1),
        (pt.sqr(N), pt.sqr(N)),
        (pt.alloc(N, 3), pt.shape_padleft(N)),
    ],
)
def test_equal(one: Any, other: Any) -> None:
    _, counts = _counts(one, other)
    assert counts.of(one) == counts.of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (N, M),
        (N, N + 1),
        (_least(S, T), _least(S, R)),
        (_least(S, T), S.shape[0]),
        (_least(S, T), _least(S, T) + 1),
        (U + pt.constant(200, dtype="uint8"), N),
        (pt.lvector("some"), pt.lvector("others")),
        # Batches of 3 times 3 loops; the count depends on the row here, on the column there.
        (pt.alloc(COLUMN, 3, 3), pt.alloc(COLUMN.dimshuffle(0), 3, 3)),
    ],
)
def test_twins_that_may_differ(one: Any, other: Any) -> None:
    _, counts = _counts(one, other)
    assert counts.of(one) != counts.of(other)


@pytest.mark.parametrize("is_upstream", [False, True])
def test_unify(is_upstream: bool) -> None:
    """What was made of one minimum is made of the other, also if that one depends on it."""
    one = _least(S, T)
    other = _least(T, S + one if is_upstream else S)
    buffers = [pt.empty((count + 1,)) for count in (one, other)]
    steps = [count + 0 for count in (one, other)]
    fgraph, counts = _counts(*buffers, *steps)
    fgraph.replace_all(counts.unified(steps[::-1]).items())
    assert len(fgraph.toposort()) == len(fgraph.apply_nodes)  # there is no cycle
    *buffers, first, second = fgraph.outputs
    lengths = Lengths()
    assert lengths.value_of(first) == lengths.value_of(second)
    for buffer in buffers:
        assert lengths.length_of(buffer) - lengths.value_of(first) == AffineExpr(1)


def test_counts_that_depend_on_loops_stay() -> None:
    """Else a loop could be made to depend on another, behind the back of whoever ordered them."""
    totals = [
        scan(lambda k: k + 1, outputs_info=[M], n_steps=N, name="count")[-1] for _ in range(2)
    ]
    one, other = (pt.minimum(total, S.shape[0]) for total in totals)
    _, counts = _counts(one, other)
    assert counts.of(one) == counts.of(one) != counts.of(other)
    assert counts.unified([one, other]) == {}
