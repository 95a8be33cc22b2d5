"""merge-duplicates: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph

from support.graph_building import graph_of, labels, only_scan, optimized, scan

X = pt.dscalar("x")
N = pt.lscalar("n")
S = pt.dvector("s")


def _over(first, second):
    return scan(lambda a, b, y: y * a + b, sequences=[first, second], outputs_info=[X], n_steps=N)


def _with(first, second):
    return scan(
        lambda y, a, b: y * a + b, outputs_info=[X], non_sequences=[first, second], n_steps=N
    )


def test_case_1_equal_sequences() -> None:
    after, remarks = optimized(graph_of(_over(pt.exp(S + 1), pt.exp(1 + S))), "merge-duplicates")
    assert labels(only_scan(after.fgraph)) == ["seq[0]", "sit_sot[0]"]
    assert len(remarks) == 1


def test_case_1_twin_sequences_that_differ() -> None:
    assert optimized(graph_of(_over(pt.exp(S + 1), pt.exp(S + 2))), "merge-duplicates")[1] == []
    assert optimized(graph_of(_over(S, S[::-1])), "merge-duplicates")[1] == []


def test_case_2_equal_non_sequences() -> None:
    c = pt.dscalar("c")
    after, _ = optimized(graph_of(_with(c * 2, c * 2)), "merge-duplicates")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]", "non_seq[0]"]


def test_case_2_twin_operands_that_do_not_commute() -> None:
    c, d = pt.dscalars("c", "d")
    assert optimized(graph_of(_with(c - d, d - c)), "merge-duplicates")[1] == []


def test_twin_sequence_and_non_sequence_stay_apart() -> None:
    ys = scan(lambda a, y, b: y * a + b.sum(), sequences=[S], outputs_info=[X], non_sequences=[S])
    assert optimized(graph_of(ys), "merge-duplicates")[1] == []


def test_twin_equal_values_with_other_gradients() -> None:
    """Two Ops that compute the same but are differentiated otherwise are not merged."""
    z = pt.dscalar("z")
    first = OpFromGraph([z], [z * 2])
    second = OpFromGraph([z], [z * 2], pullback=lambda inputs, outputs, grads: [grads[0] * 7])
    c = pt.dscalar("c")
    (remark,) = optimized(graph_of(_with(first(c), second(c))), "merge-duplicates")[1]
    assert remark.startswith("analysis graph: compared by identity: function ")


def test_twin_draws_of_different_generators() -> None:
    first, second = (pytensor.shared(0.0, name=name) for name in "ab")
    assert optimized(graph_of(_with(first, second)), "merge-duplicates")[1] == []


def test_many_equal_sequences_at_once() -> None:
    def deep(vector):
        for _ in range(20):
            vector = pt.tanh(vector) + 1
        return vector

    sequences = [deep(S) for _ in range(30)]
    ys = scan(lambda *parts: sum(parts), sequences=sequences, outputs_info=[None], n_steps=N)
    after, _ = optimized(graph_of(ys), "merge-duplicates")
    assert len(only_scan(after.fgraph).slots) == 2


def test_twin_maxima_of_zeros_of_both_signs() -> None:
    x, y = pt.dvectors("x", "y")
    graph = graph_of(_over(pt.maximum(x, y), pt.maximum(y, x)))
    assert optimized(graph, "merge-duplicates")[1] == []
