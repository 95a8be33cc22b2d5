"""Graphs that are broken become small ones that are broken in the same way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.culprits.properties import (
    CommandFails,
    Limits,
    Outcome,
    Property,
    State,
    ValuesDiffer,
)
from scanopt_cli.culprits.reducing import reduce
from scanopt_cli.culprits.reductions import REDUCTIONS, size
from scanopt_cli.errors import VerificationError
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from support.faulty_passes import FAULTY, Inexact
from support.graph_building import scan
from support.tiers import deep

PLAIN = ValuesDiffer(compiled_by="plain")


class Has(Property):
    """A graph has an Op that prints as a text."""

    def __init__(self, what: str, least: int = 1) -> None:
        self.what, self.least = what, least

    @property
    def text(self) -> str:
        return f"has {self.what}"

    def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
        del original, limits
        count = sum(str(node.op) == self.what for node in walk(graph.fgraph))
        return Outcome(State.BROKEN if count >= self.least else State.FINE)


def large_graph() -> Graph:
    """Two loops, one in the other, and what is around them; a cosine is in the inner one."""
    x, v, w = pt.dscalar("x"), pt.dvector("v"), pt.dscalar("w")

    def inner(y, w):  # type: ignore[no-untyped-def]
        return pt.cos(y * w) + pt.exp(-y)

    def outer(s, y, z, w):  # type: ignore[no-untyped-def]
        last = scan(inner, outputs_info=[y], non_sequences=[w], n_steps=3)[-1]
        return last + s, z * pt.tanh(s)

    ys, zs = scan(outer, sequences=[v], outputs_info=[x, x + 1], non_sequences=[w])
    return from_io([x, v, w], [ys[-1] * 2, zs.sum(), pt.exp(v).sum()])


def test_to_a_local_minimum() -> None:
    found = reduce(large_graph(), wrong=Has("Cos"))
    assert found.is_minimal
    assert found.after <= 4
    assert found.before > 25
    # No candidate is smaller and still has it.
    for reduction in REDUCTIONS:
        for candidate in reduction(found.graph):
            try:
                smaller = candidate()
            except Exception:  # what cannot be made is no candidate
                continue
            if smaller is not None and size(smaller) < size(found.graph):
                assert Has("Cos").of(smaller, smaller, Limits()).state is State.FINE


def test_the_same_each_time_and_in_two_parts() -> None:
    one, other = (reduce(large_graph(), wrong=Has("Tanh")) for _ in range(2))
    assert so.digest(one.graph) == so.digest(other.graph)
    seen: list[Graph] = []
    part = reduce(large_graph(), wrong=Has("Tanh"), most=3, found=seen.append)
    assert not part.is_minimal
    assert part.tried == 3
    rest = reduce(seen[-1], wrong=Has("Tanh"))
    assert size(rest.graph) == size(one.graph)


def test_recorded_calls_go_with_their_inputs() -> None:
    x, y = pt.dscalars("xy")
    graph = from_io([x, y], [pt.cos(x) + pt.exp(y)])
    calls = tuple((np.float64(k), np.float64(-k)) for k in range(3))
    graph = Graph(fgraph=graph.fgraph, recorded=calls)

    class _Recorded(Has):
        def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
            if not any(2 in call for call in graph.recorded):
                return Outcome(State.FINE)
            return super().of(graph, original, limits)

    found = reduce(graph, wrong=_Recorded("Cos"))
    assert found.graph.recorded == ((2.0,),)
    assert [v.name for v in found.graph.inputs] == ["x"]


@pytest.mark.parametrize("what", [*deep("values")])
def test_a_faulty_pass(what: str) -> None:
    """As many tanhs are left as the pass must see until it goes wrong."""
    x, w = pt.dscalars("xw")

    def step(x, w):  # type: ignore[no-untyped-def]
        for k in range(5):
            x = pt.tanh(x * w + k / 10)
        return x

    graph = from_io([x, w], [scan(step, outputs_info=[x], non_sequences=[w], n_steps=5)[-1]])
    found = reduce(graph, (Inexact(),), wrong=PLAIN)
    assert what
    assert sum(str(node.op) == "Tanh" for node in walk(found.graph.fgraph)) == FAULTY
    assert found.after <= 8


def booleans_in_a_loop() -> Graph:
    x, v = pt.dscalar("x"), pt.dvector("v")

    def step(s, y, x):  # type: ignore[no-untyped-def]
        is_large = pt.gt(abs(x), 0.001)
        return pt.tanh(y * s) + ((1 - is_large) + (1 - is_large))

    return from_io([x, v], [scan(step, sequences=[v], outputs_info=[x], non_sequences=[x])[-1]])


@pytest.mark.parametrize("build", [*deep(booleans_in_a_loop)])
def test_a_bug_of_pytensor(build: Callable[[], Graph]) -> None:
    found = reduce(build(), wrong=ValuesDiffer(compiled_by="vm"))
    assert found.after <= 6
    assert {str(node.op) for node in walk(found.graph.fgraph)} >= {"Add", "Sub"}


def test_what_is_not_broken() -> None:
    with pytest.raises(VerificationError, match="is not broken"):
        reduce(large_graph(), wrong=Has("Cosh"))


def test_what_is_not_stable() -> None:
    class _Flaky(Has):
        count = 0

        def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
            self.count += 1
            return Outcome(State.BROKEN if self.count % 2 else State.FINE)

    with pytest.raises(VerificationError, match="not stable"):
        reduce(large_graph(), wrong=_Flaky("Cos"))


def test_a_command() -> None:
    found = reduce(
        from_io(None, [pt.exp(pt.dscalar("x")) + 1]), wrong=CommandFails(command="test ! -e {}")
    )
    assert found.after in (0, 1)
