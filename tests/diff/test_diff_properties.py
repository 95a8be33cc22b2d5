"""What holds for every pair of graphs."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scanopt_cli.diff.changes import Change, ChangeKind, GraphDiff
from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.pipeline.registry import registry
from support.generated.strategies import GeneratedScan, scan_graphs
from support.rewriting_alike import mutated, written_otherwise
from support.telling import what_of
from support.tiers import examples

_PASSES = ("default", *registry())
# A changed node may be read in several ways, and change the steps and the buffers of loops.
_FEW = 8
_EXAMPLES = examples(8, 100)
_NUMBERS = re.compile(r"new |#\d+|\[\d+\]")
_OPPOSITE = {ChangeKind.ADDED: ChangeKind.REMOVED, ChangeKind.REMOVED: ChangeKind.ADDED}


def graph_of(example: GeneratedScan) -> Graph:
    return from_io(example.inputs, example.outputs)


def assert_sound(found: GraphDiff) -> None:
    """Changes are told exactly if the digests differ."""
    assert found.same == (found.digest_before == found.digest_after)
    assert found.same == (not found.changes)


def told(changes: tuple[Change, ...]) -> Counter[tuple[object, ...]]:
    """What changed, in words that are the same from either side.

    Numbers of loops and slots of one name are those of the first graph, and of changes that are
    told once the first in the order of either graph is.
    """
    counts: Counter[tuple[object, ...]] = Counter()
    for change in changes:
        what = what_of(change).partition(" of ")[0] if change.kind in _OPPOSITE else ""
        texts = (_NUMBERS.sub("", text or "") for text in (what, change.before, change.after))
        counts[change.kind, change.aspect, *texts] += change.count
    return counts


def inverted(counts: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    return Counter(
        {
            (_OPPOSITE.get(kind, kind), aspect, what, after, before): count
            for (kind, aspect, what, before, after), count in counts.items()
        }
    )


def assert_consistent(a: Graph, b: Graph) -> None:
    there, back = diff(a, b), diff(b, a)
    assert_sound(there)
    assert_sound(back)
    assert told(back.changes) == inverted(told(there.changes))


@settings(max_examples=_EXAMPLES)
@given(scan_graphs())
def test_a_graph_does_not_differ_from_itself(example: GeneratedScan) -> None:
    found = diff(graph_of(example), graph_of(example))
    assert found.same
    assert found.changes == ()


@settings(max_examples=_EXAMPLES)
@given(scan_graphs(), st.sampled_from(_PASSES))
def test_what_a_pass_did_is_told_both_ways(example: GeneratedScan, passes: str) -> None:
    graph = graph_of(example)
    assert_consistent(graph, optimize(graph, passes).graph)


@settings(max_examples=_EXAMPLES)
@given(scan_graphs(), st.integers(0, 2**32))
def test_a_graph_that_is_written_otherwise_is_the_same(example: GeneratedScan, seed: int) -> None:
    """With other names, repeated nodes and slots in another order: only loops have new names."""
    graph = graph_of(example)
    found = diff(graph, written_otherwise(graph, Random(seed)))
    assert found.same
    assert {change.kind for change in found.changes} <= {ChangeKind.RENAMED}


@settings(max_examples=_EXAMPLES)
@given(scan_graphs(), st.integers(0, 2**32))
def test_one_changed_node_is_told_both_ways_in_a_few_changes(
    example: GeneratedScan, seed: int
) -> None:
    """However the graph that it was changed in is written."""
    graph = graph_of(example)
    other = mutated(graph, Random(seed))
    assume(other is not None)
    assert other is not None
    assert_consistent(graph, other)
    again = written_otherwise(other, Random(seed))
    assert_consistent(graph, again)
    found = diff(graph, again)
    others = [change for change in found.changes if change.kind is not ChangeKind.RENAMED]
    assert 1 <= len(others) <= _FEW


# The same examples each time: two graphs that have nothing to do with each other may match in two
# ways that are equally good, and which of them `diff` takes then depends on the direction.
@settings(derandomize=True, max_examples=_EXAMPLES)
@given(scan_graphs(), scan_graphs())
def test_any_two_graphs_are_told_both_ways(a: GeneratedScan, b: GeneratedScan) -> None:
    assert_consistent(graph_of(a), graph_of(b))


@given(scan_graphs(), st.data())
@settings(max_examples=examples(10, 100))
def test_a_lost_output_is_told(example: GeneratedScan, data: st.DataObject) -> None:
    graph = graph_of(example)
    outputs = list(graph.outputs)
    place = data.draw(st.integers(0, len(outputs) - 1))
    fewer = from_io(graph.inputs, outputs[:place] + outputs[place + 1 :])
    found = diff(graph, fewer)
    assert_sound(found)
    assert not found.same
    assert_consistent(graph, fewer)
