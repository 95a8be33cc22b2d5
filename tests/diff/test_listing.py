"""What was found in a body is listed at each of its places, or at the first of many."""

from __future__ import annotations

from collections import Counter

import pytest

from scanopt_cli.diff import listing
from scanopt_cli.diff.changes import GraphDiff
from scanopt_cli.diff.comparing import diff
from scanopt_cli.reports.diff_sections import sections
from support.benchmarks.growing_graphs import nest_of_layers

_NOTE = "at the first, with the count of all"


def _of_nests(levels: int) -> GraphDiff:
    """Compare nests whose loops have other factors, at ``2**levels - 1`` places."""
    return diff(nest_of_layers(levels), nest_of_layers(levels, 2.5))


def _counts(found: GraphDiff) -> tuple[Counter[str], Counter[str]]:
    """Count the changes by what changed, and the loops by what became of them."""
    changes, loops = Counter[str](), Counter[str]()
    for change in found.changes:
        changes[f"{change.kind} {change.before} → {change.after}"] += change.count
    for loop in found.loops:
        loops[loop.fate] += loop.times
        loops["changes"] += loop.changes
    return changes, loops


def test_at_each_of_a_few_places() -> None:
    found = _of_nests(4)
    assert len({change.where for change in found.changes}) == len(found.changes) == 2**4 - 1
    assert all(change.count == 1 for change in found.changes)
    assert not any(_NOTE in note for note in found.notes)


@pytest.mark.parametrize("levels", [6, 9])
def test_at_the_first_of_many_places_with_the_count_of_all(
    levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = _of_nests(levels)
    assert any(_NOTE in note for note in short.notes)
    assert len(short.changes) <= listing.MOST_PLACES * levels
    monkeypatch.setattr(listing, "MOST_PLACES", 2**levels)
    whole = _of_nests(levels)
    assert len(whole.changes) == 2**levels - 1 > len(short.changes)
    assert _counts(short) == _counts(whole)


def test_what_is_at_millions_of_places() -> None:
    found = _of_nests(24)
    assert len(found.changes) < 24 * listing.MOST_PLACES
    assert sum(change.count for change in found.changes) == 2**24 - 1


def test_changes_are_with_their_loops() -> None:
    """The first place of a body is one for changes and loops."""
    found = sections(_of_nests(8))
    assert not found.others
    assert all(section.inside for section in found.loops)
