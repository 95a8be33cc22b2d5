"""The first position that has a property is found, whatever is open, in few evaluations."""

from __future__ import annotations

from math import log2

from hypothesis import given
from hypothesis import strategies as st

from scanopt_cli.culprits.searching import Found, first_with


def search(states: str) -> tuple[Found[str], int]:
    """Search positions that have it not (``.``), have it (``#``), or leave it open (``?``)."""
    looked: list[int] = []

    def look(position: int, left: int) -> str:
        assert 0 < position < len(states) - 1
        assert left > 1
        looked.append(position)
        return states[position]

    has_it = {".": False, "#": True, "?": None}.__getitem__
    found = first_with({0: states[0], len(states) - 1: states[-1]}, has_it, look)
    assert len(looked) == len({*looked})
    return found, len(looked)


def sound(found: Found[str], states: str) -> None:
    """Both ends were seen, and so was all between that was looked at, to be open."""
    assert states[found.first] == "#"
    assert found.last_without == -1 or states[found.last_without] == "."
    between = range(found.last_without + 1, found.first)
    assert all(found.seen.get(position, "?") == "?" for position in between)
    assert found.is_certain == (len(between) == 0)


@given(st.integers(1, 3_000), st.integers(1, 3_000))
def test_nothing_open(without: int, having: int) -> None:
    states = "." * without + "#" * having
    found, count = search(states)
    assert (found.first, found.is_certain) == (without, True)
    assert count <= log2(len(states)) + 1


@given(st.integers(0, 2_000), st.integers(1, 2_000), st.integers(1, 2_000))
def test_open_ones_that_follow_each_other(without: int, n_open: int, having: int) -> None:
    """The range is exact, even if what is before the first one is open."""
    states = "." * without + "?" * n_open + "#" * having
    found, count = search(states)
    assert (found.last_without, found.first) == (without - 1, without + n_open)
    assert not found.is_certain
    sound(found, states)
    assert count <= 2 * log2(len(states)) + 9


@given(st.data())
def test_open_ones_that_stand_alone(data: st.DataObject) -> None:
    """They are stepped over: only one that is just before the first one is in doubt."""
    n = data.draw(st.integers(3, 500))
    first = data.draw(st.integers(1, n - 1))
    states = list("." * first + "#" * (n - first))
    for position in data.draw(st.lists(st.integers(1, n - 2), unique=True)):
        if not {*states[position - 1 : position + 2]} & {"?"}:
            states[position] = "?"
    found, count = search("".join(states))
    sound(found, "".join(states))
    wanted = next(k for k in range(first, n) if states[k] == "#")
    before = max(k for k in range(first) if states[k] == ".")
    assert (found.last_without, found.first) == (before, wanted)
    assert count <= 2 * log2(n) + 4


@given(st.data())
def test_open_ones_anywhere(data: st.DataObject) -> None:
    """What is said is true, and the one that is looked for is not ruled out."""
    n = data.draw(st.integers(2, 300))
    first = data.draw(st.integers(1, n - 1))
    states = list("." * first + "#" * (n - first))
    for position in data.draw(st.lists(st.integers(0, n - 2), unique=True)):
        states[position] = "?"
    found, count = search("".join(states))
    sound(found, "".join(states))
    assert found.last_without < first <= found.first
    assert count <= 8 * log2(n) + 12
