"""Boxes keep their order from stage to stage, as far as edges allow it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scanopt_cli.page.ordering import in_earlier_order
from scanopt_cli.page.picture import Box, BoxKind, Edge, Picture
from support.drawn_graphs import passes_of
from support.sample_building import samples
from support.tiers import deep


def box(number: int, *reads: int) -> Box:
    edges = tuple(Edge(port=port, box=read) for port, read in enumerate(reads))
    return Box(id=number, kind=BoxKind.OPERATION, label=str(number), edges=edges)


def order(boxes: list[Box], earlier: list[int]) -> list[int]:
    places = {number: place for place, number in enumerate(earlier)}
    return [one.id for one in in_earlier_order(boxes, places)]


def test_the_earlier_order_is_kept() -> None:
    assert order([box(3), box(1), box(2)], [1, 2, 3]) == [1, 2, 3]


def test_without_an_earlier_order_nothing_is_moved() -> None:
    assert order([box(3), box(1), box(2)], []) == [3, 1, 2]


def test_a_new_box_comes_behind_the_one_that_it_was_behind() -> None:
    assert order([box(3), box(9, 3), box(1), box(8)], [1, 3]) == [1, 8, 3, 9]
    assert order([box(9), box(2), box(1)], [1, 2]) == [9, 1, 2]


def test_a_box_comes_behind_those_that_it_reads() -> None:
    assert order([box(3), box(2, 3), box(1, 3)], [1, 2, 3]) == [3, 1, 2]
    assert order([box(3), box(2, 3, 7), box(1)], [2, 1, 3]) == [1, 3, 2]  # 7 is of another part


@pytest.mark.parametrize("name", ["seed_grad", "rnn_grad", *deep("kalman_dlogp", "garch_dlogp")])
def test_no_two_inputs_of_a_sample_gradient_swap(name: str) -> None:
    drawn = passes_of(samples()[name], "grad")
    compared = 0
    for before, after in pairwise(drawn.stages):
        for old, new in _bodies(drawn, before.level, after.level):
            mine, others = (
                [b.id for b in drawn.levels[side].boxes if b.kind is BoxKind.INPUT]
                for side in (old, new)
            )
            both = set(mine) & set(others)
            compared += len(both)
            assert [n for n in mine if n in both] == [n for n in others if n in both]
    assert compared


def _bodies(drawn: Picture, before: str, after: str) -> list[tuple[str, str]]:
    """Return the levels that correspond, themselves among them."""
    old = {one.id: one for one in drawn.levels[before].boxes}
    found = [(before, after)]
    for one in drawn.levels[after].boxes:
        if one.body and one.id in old and old[one.id].body:
            found += _bodies(drawn, old[one.id].body, one.body)
    return found
