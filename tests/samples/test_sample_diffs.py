"""The diff of every sample with itself, and with what the passes make of it."""

from __future__ import annotations

from importlib import import_module

import pytest

from scanopt_cli.diff.changes import ChangeKind, GraphDiff
from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.pipeline.runner import run_pipeline
from support.sample_building import samples

NAMES = tuple(samples())
# What earlier passes do, so that the numbers below stay what they are when others join them.
PASSES = "remove-unused,inline-constants,merge-duplicates,save-mem"


def rewritten(graph: Graph, passes: str) -> Graph:
    """What the passes alone do, without what `optimize` ends with for whoever compiles it."""
    work = graph.copy()
    run_pipeline(work.fgraph, parse(passes))
    return work


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_does_not_differ_from_itself(name: str) -> None:
    graph = samples()[name]
    for other in (graph, graph.copy()):
        found = diff(graph, other)
        assert found.same
        assert found.changes == ()
        assert found.notes == ()
        assert found.digest_before == found.digest_after


def counts(found: GraphDiff) -> dict[ChangeKind, int]:
    return {kind: found.count(kind) for kind in ChangeKind}


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", NAMES)
def test_what_the_passes_add_one_way_they_remove_the_other(name: str) -> None:
    graph = samples()[name]
    clean = optimize(graph, PASSES).graph
    there, back = diff(graph, clean), diff(clean, graph)
    assert there.same == back.same == (not there.changes) == (not back.changes)
    one_way, other_way = counts(there), counts(back)
    added, removed = ChangeKind.ADDED, ChangeKind.REMOVED
    other_way[added], other_way[removed] = other_way[removed], other_way[added]
    assert one_way == other_way


@pytest.mark.parametrize(("name", "most"), [("nested", 6), ("unused", 5), ("kalman_dlogp", 5)])
def test_what_the_passes_do_is_told_in_a_few_changes(name: str, most: int) -> None:
    graph = samples()[name]
    assert 0 < len(diff(graph, rewritten(graph, PASSES)).changes) <= most


@pytest.mark.pymc
def test_the_state_that_a_garch_gradient_reads_is_the_one_that_stays() -> None:
    """Each of three loops has three states that start and are updated alike; one is read."""
    graph = from_io(*import_module("garch").build()["garch_dlogp"])
    found = diff(graph, rewritten(graph, "remove-unused,save-mem"))
    assert {change.kind for change in found.changes} == {ChangeKind.REMOVED, ChangeKind.CHANGED}
    (rows,) = [change for change in found.changes if change.aspect == "rows"]
    assert (rows.before, rows.after, rows.count) == ("6", "2", 3)
    assert not any(change.where for change in found.changes)
