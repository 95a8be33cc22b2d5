"""How a graph is beside what is locked: which changes count as worse, and which as better."""

from __future__ import annotations

from typing import Any

import pytest

from scanopt_cli.gates.comparing import LIMITED, State, status_of
from scanopt_cli.gates.lock_file import LockedFinding, LockedGraph


def finding(key: str, loop: str = "a") -> LockedFinding:
    return LockedFinding(rule="P001", loop=loop, place=None, key=key)


def graph(byte: str = "0", digest: str | None = "0", **changes: Any) -> LockedGraph:
    found: dict[str, Any] = {
        "digest": digest and digest * 32,
        "sha256": byte * 64,
        "by": "",
        "counts": {"scans": 2, "sit_sot": 3},
    }
    return LockedGraph(**{**found, **changes})


def test_states() -> None:
    assert status_of("a", graph(), graph()).state is State.UNCHANGED
    assert status_of("a", graph(), graph("1")).state is State.SAME
    assert status_of("a", graph(), graph("1", "1")).state is State.CHANGED
    assert status_of("a", graph(digest=None), graph("1", None)).state is State.CHANGED
    assert status_of("a", None, graph()).state is State.NEW
    assert status_of("a", graph(), None).state is State.MISSING


def test_a_graph_that_is_missing_or_not_locked_is_worse() -> None:
    assert status_of("a", None, graph()).is_worse
    assert status_of("a", graph(), None).is_worse
    assert not status_of("a", graph(), graph("1", "1")).is_worse


@pytest.mark.parametrize("count", LIMITED)
def test_more_of_a_count_with_a_limit_is_worse_and_less_is_better(count: str) -> None:
    few, many = (graph(str(n), counts={count: n} if n else {}) for n in (0, 4))
    more, less = status_of("a", few, many), status_of("a", many, few)
    assert (more.is_worse, more.is_better) == (True, False)
    assert (less.is_worse, less.is_better) == (False, True)
    (change,) = more.counts
    assert (change.count, change.locked, change.now, change.limit) == (count, 0, 4, 0)


def test_other_counts_are_told_and_have_no_limit() -> None:
    status = status_of("a", graph(), graph("1", counts={"scans": 2, "sit_sot": 2, "mit_mot": 9}))
    assert {change.count for change in status.counts} == {"sit_sot", "mit_mot"}
    assert (status.is_worse, status.is_better) == (False, False)


def test_a_budget_takes_the_place_of_what_is_locked() -> None:
    now = graph("1", counts={"scans": 4, "mit_mot": 1})
    assert status_of("a", graph(), now).is_worse
    assert not status_of("a", graph(), now, {"scans": 4}).is_worse
    assert not status_of("a", graph(budget={"scans": 4}), now, {"scans": 0}).is_worse
    assert status_of("a", graph(budget={"scans": 3}), now, {"scans": 9}).is_worse
    assert status_of("a", graph(), now, {"scans": 4, "mit_mot": 0}).is_worse
    # One that holds for what did not change, too.
    over = status_of("a", graph(), graph(), {"scans": 1})
    assert (over.state, over.is_worse) == (State.UNCHANGED, True)


def test_findings_are_compared_by_what_they_are_about() -> None:
    known = graph(findings=(finding("k"), finding("k"), finding("gone", "b")))
    moved = (finding("k", "renamed"), finding("k"), finding("k"), finding("new", "c"))
    status = status_of("a", known, graph("1", findings=moved))
    assert [each.key for each in status.found] == ["k", "new"]
    assert [each.key for each in status.gone] == ["gone"]
    assert (status.is_worse, status.is_better) == (True, False)
    fewer = status_of("a", known, graph("1", findings=(finding("k"), finding("k"))))
    assert (fewer.is_worse, fewer.is_better) == (False, True)


def test_a_finding_stays_known_where_its_loop_has_changed() -> None:
    known = graph(findings=(finding("one", "a#1"), finding("two", "b")))
    now = (finding("other", "a#2"), finding("three", "b"), finding("four", "b"))
    status = status_of("a", known, graph("1", "1", findings=now))
    assert [each.key for each in status.found] == ["four"]
    assert status.gone == ()
    assert status_of("a", known, graph("1", "1", findings=now[:1])).gone == known.findings[1:]
