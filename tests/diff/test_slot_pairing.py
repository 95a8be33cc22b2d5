"""Which slot of a loop is which after a change, where names and starts do not say it."""

from __future__ import annotations

from collections.abc import Sequence

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.pipeline.optimizing import optimize
from support.graph_building import scan_views
from support.recurrences import tensor
from support.telling import CHANGED, REMOVED, REWIRED, changes, only_change, what_of

# What a step adds to a state of what three sequences hold; all start alike.
ADDED = {
    "a": lambda x, y, z: x,
    "b": lambda x, y, z: y,
    "c": lambda x, y, z: z,
    "d": lambda x, y, z: pt.exp(x * z),
}


def loop(
    states: str, *, start: str = "", read: str = "abcd", order: str = "xyz", factor: float = 0.5
) -> Graph:
    """A loop of ``states`` that start with zero or with the input ``start``; some are read."""
    inputs = {name: tensor(name) for name in "xyz"} | {"h0": pt.dscalar("h0"), "n": pt.lscalar("n")}

    def step(*arguments: Variable) -> list[Variable]:
        seen = dict(zip(order, arguments, strict=False))
        past = arguments[len(order) :]
        return [
            v * factor + ADDED[name](seen["x"], seen["y"], seen["z"])
            for name, v in zip(states, past, strict=True)
        ]

    results = pytensor.scan(
        step,
        sequences=[inputs[name] for name in order],
        outputs_info=[inputs.get(start, pt.zeros(())) for _ in states],
        n_steps=inputs["n"],
        name="loop",
        return_list=True,
        return_updates=False,
    )
    outputs = {name: result[-1] for name, result in zip(states, results, strict=True)}
    return from_io(list(inputs.values()), [outputs[name] for name in read if name in outputs])


@pytest.mark.parametrize("start", ["", "h0"])
@pytest.mark.parametrize("dropped", "abcd")
def test_a_dropped_state_is_the_one_that_went(dropped: str, start: str) -> None:
    """All others stay what they are, though their numbers shift."""
    kept = "abcd".replace(dropped, "")
    found = changes(loop("abcd", start=start), loop(kept, start=start, read=kept))
    name = "h0#" if start else "sit_sot["
    assert [change.kind for change in found] == [REMOVED, REMOVED]
    slot = next(change for change in found if what_of(change).startswith("sit_sot"))
    place = "abcd".index(dropped) + bool(start)
    assert what_of(slot).startswith(f"sit_sot `{name}{place}")
    assert not any(change.where for change in found)


@pytest.mark.parametrize("states", ["bdca", "dcba", "bacd"])
@pytest.mark.parametrize("order", ["xyz", "zxy"])
def test_states_in_another_order_are_the_same(states: str, order: str) -> None:
    found = diff(loop("abcd"), loop(states, order=order))
    assert found.same


@pytest.mark.parametrize("states", ["bca", "cab"])
def test_a_dropped_state_among_states_in_another_order(states: str) -> None:
    found = changes(loop("abcd"), loop(states, order="yzx"))
    assert [(c.kind, c.where) for c in found] == [(REMOVED, ())] * 2
    assert sum(what_of(c) == "sit_sot `sit_sot[3]` of Scan `loop`" for c in found) == 1


def test_changed_states_in_another_order_are_known_by_their_readers() -> None:
    """They start alike, and no update is what it was."""
    found = changes(loop("abcd"), loop("cabd", factor=0.25))
    assert {(c.kind, c.before, c.after) for c in found} == {(CHANGED, "0.5", "0.25")}


OPERATORS = {"p": pt.exp, "q": pt.tanh, "r": pt.cosh}


def folded(states: str, factor: float) -> Graph:
    """States that start alike, each with an Op of its own, and their sum, which alone is read."""
    x = tensor("x")

    def step(seen: Variable, *past: Variable) -> list[Variable]:
        parts = zip(states, past, strict=False)
        new = {name: OPERATORS[name](v * factor) + seen for name, v in parts}
        return [*new.values(), new["p"] - new["q"] / new["r"]]

    starts = [*(pt.zeros(()) for _ in states), None]
    *_, total = pytensor.scan(step, [x], starts, name="loop", return_updates=False)
    return from_io([x], [total])


def test_changed_states_in_another_order_are_known_by_their_ops() -> None:
    found = changes(folded("pqr", 0.5), folded("rpq", 0.25))
    assert not {"exp", "tanh", "cosh"} & {part for c in found for part in (c.before, c.after)}
    assert any((c.before, c.after) == ("0.5", "0.25") for c in found)


def test_the_state_that_is_read_stays_where_all_others_go() -> None:
    """As in the gradient of a GARCH model: the only difference is which of them is read."""
    for read in "abcd":
        before = loop("abcd", read=read)
        found = changes(before, optimize(before, "remove-unused").graph)
        assert {change.kind for change in found} == {REMOVED}
        removed = {what_of(c) for c in found if what_of(c).startswith("sit_sot")}
        count = sum(c.count for c in found if what_of(c).startswith("sit_sot"))
        assert count == 3
        assert f"sit_sot `sit_sot[{'abcd'.index(read)}]` of Scan `loop`" not in removed


def chain(length: int, factor: float = 0.5) -> Graph:
    """States that start alike, each updated by the one before it as all others are."""
    x = tensor("x")

    def step(seen: Variable, *past: Variable) -> list[Variable]:
        return [seen + past[0], *(v + pt.tanh(w) for v, w in zip(past[1:], past, strict=False))]

    results = pytensor.scan(
        step, [x], [pt.zeros(()) for _ in range(length)], name="loop", return_list=True,
        return_updates=False,
    )  # fmt: skip
    return from_io([x], [results[-1][-1] * factor])


def test_states_that_come_apart_one_by_one() -> None:
    """Each is told by the one before it, which is told first."""
    change = only_change(chain(20), chain(20, 0.25))
    assert (change.kind, change.before, change.after) == (CHANGED, "0.5", "0.25")


def test_equal_inputs_that_became_one() -> None:
    x = tensor("x")
    # Two sequences of equal values, each read by an Op of its own.
    twice = pytensor.scan(
        lambda a, b: pt.exp(a) + pt.tanh(b), [x, x], name="loop", return_updates=False
    )
    graph = from_io([x], [twice])
    assert len(next(scan_views(graph.fgraph)).of_kind(SlotKind.SEQ)) == 2
    gone, read = changes(graph, optimize(graph, "merge-duplicates").graph)
    assert (gone.kind, what_of(gone)) == (REMOVED, "seq `x#2` of Scan `loop`")
    assert (read.kind, read.before, read.after) == (REWIRED, "x#2[t]", "x#1[t]")


def fed(names: Sequence[str], sources: Sequence[str]) -> Graph:
    """A loop over sequences of which each has its own part in the step."""
    inputs = {name: tensor(name) for name in "xyz"} | {"n": pt.lscalar("n")}
    operators = {"p": pt.exp, "q": pt.tanh, "r": pt.sqrt}

    def step(*seen: Variable) -> Variable:
        parts = {name: operators[name](value) for name, value in zip(names, seen, strict=True)}
        return parts["p"] * parts["q"] - parts["r"]

    result = pytensor.scan(
        step, [inputs[name] for name in sources], n_steps=inputs["n"], name="loop",
        return_updates=False,
    )  # fmt: skip
    return from_io(list(inputs.values()), [result])


def test_equal_loops_that_are_fed_otherwise_are_rewired() -> None:
    """In whatever order the slots stand: each keeps its part in the step."""
    for names, sources in (("pqr", "yxz"), ("rqp", "zxy")):
        found = changes(fed("pqr", "xyz"), fed(names, sources))
        assert [(c.kind, c.where) for c in found] == [(REWIRED, ())] * 2
        assert sorted((c.before, c.after) for c in found) == [
            ("x[0:][:n]", "y[0:][:n]"),
            ("y[0:][:n]", "x[0:][:n]"),
        ]
