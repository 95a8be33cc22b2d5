"""What holds for every pair of graphs."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from scanopt_cli.diffing.comparing import diff
from scanopt_cli.diffing.result import Change, ChangeKind, GraphDiff
from scanopt_cli.graphs.graph import Graph, from_io
from scanopt_cli.passes.optimizing import optimize
from strategies import GeneratedScan, scan_graphs

_OPPOSITE = {ChangeKind.ADDED: ChangeKind.REMOVED, ChangeKind.REMOVED: ChangeKind.ADDED}


def graph_of(example: GeneratedScan) -> Graph:
    return from_io(example.inputs, example.outputs)


def assert_sound(found: GraphDiff) -> None:
    """Changes are told exactly if the digests differ."""
    assert found.same == (found.digest_before == found.digest_after)
    assert found.same == (not found.changes)


def told(changes: tuple[Change, ...]) -> Counter[tuple[object, ...]]:
    """What changed, in words that are the same from either side."""
    counts: Counter[tuple[object, ...]] = Counter()
    for change in changes:
        what = change.what if change.kind in _OPPOSITE else ""
        counts[change.kind, what, change.aspect, change.before, change.after] += change.count
    return counts


def inverted(counts: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    return Counter(
        {
            (_OPPOSITE.get(kind, kind), what, aspect, after, before): count
            for (kind, what, aspect, before, after), count in counts.items()
        }
    )


def assert_consistent(a: Graph, b: Graph) -> None:
    there, back = diff(a, b), diff(b, a)
    assert_sound(there)
    assert_sound(back)
    assert told(back.changes) == inverted(told(there.changes))


@given(scan_graphs())
def test_a_graph_does_not_differ_from_itself(example: GeneratedScan) -> None:
    found = diff(graph_of(example), graph_of(example))
    assert found.same
    assert found.changes == ()


@given(scan_graphs(), st.sampled_from(["default", "remove-unused", "save-mem", "inline-constants"]))
def test_what_a_pass_did_is_told_both_ways(example: GeneratedScan, passes: str) -> None:
    graph = graph_of(example)
    assert_consistent(graph, optimize(graph, passes).graph)


@given(scan_graphs(), scan_graphs())
def test_any_two_graphs_are_told_both_ways(a: GeneratedScan, b: GeneratedScan) -> None:
    assert_consistent(graph_of(a), graph_of(b))


@given(scan_graphs(), st.data())
@settings(max_examples=30)
def test_a_lost_output_is_told(example: GeneratedScan, data: st.DataObject) -> None:
    graph = graph_of(example)
    outputs = list(graph.outputs)
    place = data.draw(st.integers(0, len(outputs) - 1))
    fewer = from_io(graph.inputs, outputs[:place] + outputs[place + 1 :])
    found = diff(graph, fewer)
    assert_sound(found)
    assert not found.same
    assert_consistent(graph, fewer)
