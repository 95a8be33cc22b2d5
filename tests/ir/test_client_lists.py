"""Readers are removed as from a list, without a search through all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.ir.fast_graphs import rewrite_fast
from support.graph_building import graph_of


def _readers_of_one_variable(count: int) -> tuple[FunctionGraph, Any]:
    x = pt.dvector("x")
    fgraph = graph_of(*(x * (i + 0.5) for i in range(count))).fgraph
    return fgraph, fgraph.inputs[0]


@given(picks=st.lists(st.integers(0, 199), max_size=250))
def test_what_is_left_is_what_a_list_would_have_left(picks: list[int]) -> None:
    fgraph, x = _readers_of_one_variable(200)
    plain = list(fgraph.clients[x])
    readers = list(plain)
    rewrite_fast(fgraph)
    for pick in picks:
        reader = readers[pick]
        if reader in plain:
            plain.remove(reader)
            fgraph.clients[x].remove(reader)
        else:
            with pytest.raises(ValueError, match="not in list"):
                fgraph.clients[x].remove(reader)
            plain.append(reader)
            fgraph.clients[x].append(reader)
        assert fgraph.clients[x] == plain


class _Counted:
    """What counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return self is other

    __hash__ = object.__hash__


_ORDERS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "from the front": list,
    "from the end": lambda readers: readers[::-1],
    "every second one": lambda readers: readers[1::2],
}


@pytest.mark.deep
@pytest.mark.parametrize("order", _ORDERS)
def test_a_walk_over_the_readers_takes_linear_time(order: str) -> None:
    fgraph, _ = _readers_of_one_variable(1)
    rewrite_fast(fgraph)
    x = pt.dvector("x")
    fgraph.clients[x] = [(_Counted(), 0) for _ in range(1_000)]
    _Counted.compared = 0
    for reader in _ORDERS[order](list(fgraph.clients[x])):
        fgraph.clients[x].remove(reader)
        for _ in range(20):
            fgraph.clients[x].append((_Counted(), 0))
        fgraph.clients[x].remove(fgraph.clients[x][-1])
    assert _Counted.compared < 100_000


class _WrittenOut:
    """What counts how often its text is asked for, which is that of a whole graph for a reader."""

    texts = 0

    def __repr__(self) -> str:
        _WrittenOut.texts += 1
        return "a reader"


def test_no_reader_is_written_out() -> None:
    fgraph, _ = _readers_of_one_variable(1)
    rewrite_fast(fgraph)
    x = pt.dvector("x")
    readers = [(_WrittenOut(), 0) for _ in range(200)]
    fgraph.clients[x] = readers
    for reader in (readers[100], readers[50], readers[150]):
        fgraph.clients[x].remove(reader)
    with pytest.raises(ValueError, match="not in list"):
        fgraph.clients[x].remove(readers[100])
    assert len(fgraph.clients[x]) == 197
    assert not _WrittenOut.texts
