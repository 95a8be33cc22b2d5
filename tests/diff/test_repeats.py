"""Repeated equal changes are told once with a count, wherever they repeat."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable

from scanopt_cli.ir.graph import Graph, from_io
from support.recurrences import tensor
from support.telling import (
    ADDED,
    CHANGED,
    RENAMED,
    REWIRED,
    changes,
    notes_of,
    only_change,
    what_of,
)

type Operator = Callable[[Variable], Variable]


def layers(count: int, changed: Collection[int] = (), *, loops: bool = False) -> Graph:
    """A chain of OpFromGraphs or of loops, some of which have another constant."""
    x = result = tensor("x")
    ops: dict[float, OpFromGraph] = {}
    for place in range(count):
        factor = 3.0 if place in changed else 2.0
        if loops:
            result = pytensor.scan(
                lambda a, factor=factor: pt.tanh(a * factor), result, name="layer",
                return_updates=False,
            )  # fmt: skip
        else:
            u = tensor("u")
            op = ops.setdefault(factor, OpFromGraph([u], [pt.tanh(u * factor)], name="layer"))
            result = op(result)
    return from_io([x], [result])


@pytest.mark.parametrize("loops", [False, True])
def test_a_change_in_every_body_of_one_name(loops: bool) -> None:
    change = only_change(layers(20, loops=loops), layers(20, range(20), loops=loops))
    assert (change.where, change.count) == (("layer",), 20)
    assert (change.aspect, change.before, change.after) == ("constant", "2.0", "3.0")


@pytest.mark.parametrize("loops", [False, True])
def test_a_change_in_some_bodies_of_one_name(loops: bool) -> None:
    change = only_change(layers(6, loops=loops), layers(6, (1, 3, 4), loops=loops))
    assert (change.where, change.count) == (("layer#2 and 2 more",), 3)
    alone = only_change(layers(6, loops=loops), layers(6, (3,), loops=loops))
    assert (alone.where, alone.count) == (("layer#4",), 1)


def test_bodies_within_bodies() -> None:
    def graph(factor: float) -> Graph:
        u, v, x = tensor("u"), tensor("v"), tensor("x")
        inner = OpFromGraph([u], [pt.exp(u * factor)], name="inner")
        outer = OpFromGraph([v], [inner(inner(inner(v)))], name="outer")
        return from_io([x], [outer(outer(x))])

    change = only_change(graph(2.0), graph(3.0))
    assert (change.where, change.count) == (("outer", "inner"), 6)


def spread(operator: Operator, over: Operator = lambda v: v) -> Graph:
    """One operator on each of a dozen inputs."""
    inputs = [tensor(f"x{place}") for place in range(12)]
    terms = [operator(over(variable)) for variable in inputs]
    return from_io(inputs, [sum(terms[1:], start=terms[0])])


def test_another_operation_in_many_places() -> None:
    change = only_change(spread(pt.tanh), spread(pt.sigmoid))
    assert (change.kind, change.aspect, change.count) == (CHANGED, "op", 12)
    assert notes_of(change)[0].startswith("also Tanh of x")
    assert notes_of(change)[0].endswith(", 9 more")


def test_a_node_put_in_between_in_many_places() -> None:
    found = changes(spread(lambda v: v, pt.exp), spread(pt.tanh, pt.exp))
    assert [(c.kind, what_of(c).partition(" of ")[0]) for c in found] == [(ADDED, "Tanh")]
    assert found[0].count == 12


def test_many_that_read_something_else() -> None:
    x, y = tensor("x"), tensor("y")

    def graph(v: Variable) -> Graph:
        return from_io([x, y], [v * 2.0, v + 3.0, pt.exp(v), pt.sin(v), x - y])

    change = only_change(graph(x), graph(y))
    assert (change.kind, change.before, change.after, change.count) == (REWIRED, "x", "y", 4)


def test_one_slot_of_many_loops() -> None:
    def graph(extra: int) -> Graph:
        x, n = tensor("x"), pt.lscalar("n")
        result = x
        for _ in range(5):
            result = pytensor.scan(
                lambda a, h: pt.tanh(a + h), result, [pt.zeros(())], n_steps=n + extra,
                name="loop", return_updates=False,
            )  # fmt: skip
        return from_io([x, n], [result])

    change = only_change(graph(1), graph(2))
    assert (what_of(change), change.aspect, change.count) == ("Scan `loop#1`", "steps", 5)
    assert notes_of(change) == ("also Scan `loop#2`, Scan `loop#3`, 2 more",)


def test_loops_of_one_name_that_got_another() -> None:
    def graph(name: str, factor: float) -> Graph:
        x = result = tensor("x")
        for _ in range(4):
            result = pytensor.scan(pt.exp, result, name=name, return_updates=False)
        return from_io([x], [result * factor])

    _, renamed = changes(graph("old", 1.0), graph("new", 2.0))
    assert (renamed.kind, renamed.count) == (RENAMED, 4)


def test_changes_that_differ_are_not_one() -> None:
    x, y = tensor("x"), tensor("y")
    found = changes(([x, y], [pt.tanh(x), pt.exp(y)]), ([x, y], [pt.sigmoid(x), pt.sin(y)]))
    assert sorted((c.before, c.after) for c in found) == [("Exp", "Sin"), ("Tanh", "Sigmoid")]
