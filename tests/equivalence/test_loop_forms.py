"""The canonical form of loops: blind to where slots stand, and sound where they are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scan.utils import until

from scanopt_cli.equivalence import sameness
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.loop_forms import condition_key, trajectories
from scanopt_cli.equivalence.opaque import identity
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.graph import from_io
from support.graph_building import graph_of, only_scan, scan


def _form(*outputs: Variable) -> Any:
    return Sameness().form(only_scan(graph_of(*outputs).fgraph).op)


def test_states_that_nothing_but_their_starts_tells_apart() -> None:
    x, y = pt.dscalars("x", "y")
    a, b = scan(lambda p, q: [p * 2, q * 2], outputs_info=[x, y], n_steps=5)
    d, c = scan(lambda q, p: [q * 2, p * 2], outputs_info=[y, x], n_steps=5)
    assert _form(a, b).has_ties
    assert digest(([x, y], [a, b])) == digest(([x, y], [c, d]))
    assert digest(([x, y], [a, b])) != digest(([x, y], [d, c]))


def test_states_that_their_readers_tell_apart() -> None:
    x, y = pt.dscalars("x", "y")
    a, b = scan(lambda p, q: [p * 2, q * 2 + 0 * p], outputs_info=[x, y], n_steps=5)
    assert not _form(a, b).has_ties


def test_a_sum_of_one_term() -> None:
    """It has no second operand that the first might be swapped with."""
    x = pt.dvector("x")
    same, other = (digest(([x], [scan(pt.add, sequences=[x]) * 2])) for _ in range(2))
    assert same == other


def test_pairs_of_alike_slots_stay_pairs() -> None:
    """Each state reads a sequence of its own: crossing them over is another loop."""
    s, t = pt.dvectors("s", "t")
    x, y = pt.dscalars("x", "y")

    def loop(first: Variable, second: Variable) -> list[Variable]:
        step = lambda a, b, p, q: [p + a, q + b]  # noqa: E731
        return list(scan(step, sequences=[first, second], outputs_info=[x, y]))

    straight = digest(([s, t, x, y], loop(s, t)))
    crossed = digest(([s, t, x, y], loop(t, s)))
    assert straight != crossed
    n = pt.lscalar("n")
    a, b = scan(lambda a, b, p, q: [p + a, q + b], sequences=[s, t], outputs_info=[x, y], n_steps=n)
    d, c = scan(lambda b, a, q, p: [q + b, p + a], sequences=[t, s], outputs_info=[y, x], n_steps=n)
    assert digest(([s, t, x, y, n], [a, b])) == digest(([s, t, x, y, n], [c, d]))


def test_values_of_slots_step_by_step() -> None:
    x, y = pt.dscalars("x", "y")
    outputs = scan(
        lambda a, b, c, d: [b * 2, a * 2, d * 2, c * 2], outputs_info=[x, x, x, y], n_steps=3
    )
    fgraph = graph_of(*outputs).fgraph
    view = only_scan(fgraph)
    told = trajectories(Digests(fgraph.inputs, Sameness()), view)
    values = [told[slot].values for slot in view.slots]
    assert values[0] == values[1]
    assert len(set(values)) == 3


def test_conditions_of_loops_that_do_other_things_besides() -> None:
    x = pt.dscalar("x")

    def condition(step: Any, starts: int, limit: float = 10.0) -> bytes:
        outputs = scan(
            lambda *states: (step(*states), until(states[0] > limit)),
            outputs_info=[x] * starts,
            n_steps=20,
        )
        outputs = outputs if isinstance(outputs, list) else [outputs]
        fgraph = graph_of(*outputs).fgraph
        return condition_key(Digests(fgraph.inputs, Sameness()), only_scan(fgraph))

    alone = condition(lambda p: [p * 2], 1)
    assert alone == condition(lambda p, q: [2 * p, q + p], 2)
    assert alone != condition(lambda p, q: [p * 2 + q, q + p], 2)
    assert alone != condition(lambda p: [p * 3], 1)
    assert alone != condition(lambda p: [p * 2], 1, limit=11.0)


@pytest.mark.deep
def test_loops_deep_in_loops_are_told_by_places_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each level applies the one below twice: looked into each time, it would never end."""
    monkeypatch.setattr(sameness, "_LOOKED_INTO", 100)
    x, y = pt.dscalars("x", "y")

    def level(depth: int) -> Any:
        if depth == 0:
            return lambda p, q: [p * 2, q * 2]
        inner = level(depth - 1)

        def step(p: Variable, q: Variable) -> list[Variable]:
            for _ in range(2):
                p, q = (v[-1] for v in scan(inner, outputs_info=[p, q], n_steps=2))
            return [p, q]

        return step

    a, b = scan(level(6), outputs_info=[x, y], n_steps=2)
    assert digest(([x, y], [a])) != digest(([x, y], [b]))


def test_slots_that_come_apart_one_by_one() -> None:
    z, s = pt.dscalar("z"), pt.dvector("s")

    def delayed(order: list[int]) -> str:
        def step(entry: Variable, *states: Variable) -> list[Variable]:
            by_place = dict(zip(order, states, strict=True))
            new = {0: by_place[0] * 0.5 + entry} | {k: by_place[k - 1] for k in range(1, 30)}
            return [new[place] for place in order]

        outputs = scan(step, sequences=[s], outputs_info=[z] * 30)
        found = dict(zip(order, outputs, strict=True))
        return digest(([z, s], [found[place] for place in range(30)]))

    order = list(range(30))
    assert delayed(order) == delayed(order[::-1])


def test_tokens_are_never_given_twice() -> None:
    tokens = {identity(lambda: None) for _ in range(100)}
    assert len(tokens) == 100
    kept = [lambda: None]
    assert identity(kept[0]) == identity(kept[0])


def test_ops_that_are_gone_are_not_taken_for_new_ones() -> None:
    """A new closure often gets the address of one that is gone."""

    def told(factor: float) -> str:
        class Times(Op):
            def __init__(self) -> None:
                self.function = lambda value: value * factor

            def make_node(self, x):
                return Apply(self, [x], [x.type()])

            def perform(self, node, inputs, outputs):
                outputs[0][0] = self.function(inputs[0])

        x = pt.dscalar("x")
        return digest(([x], [Times()(x)]))

    assert len({told(float(factor)) for factor in range(50)}) == 50


def test_exact_keys_tell_large_constants_apart() -> None:
    """Even if their hashes were equal."""
    x = pt.dvector("x")
    one, other = np.zeros(5000), np.zeros(5000)
    other[-1] = 1.0
    digests = Digests([x], Sameness(exact=True))
    assert digests.of(x + one) == digests.of(x + np.zeros(5000))
    assert digests.of(x + one) != digests.of(x + other)


def test_the_order_of_slots_counts_if_it_is_asked_for() -> None:
    x, y = pt.dscalars("x", "y")

    def summed(*, turned: bool) -> Any:
        """The sum of two states, in one order or the other."""
        starts = [y, x] if turned else [x, y]
        states = scan(
            lambda a, b: [b + 1, a * 2] if not turned else [b * 2, a + 1],
            outputs_info=starts,
            n_steps=3,
        )
        first, second = states[::-1] if turned else states
        return from_io([x, y], [first + second]).fgraph

    for in_order in (False, True):
        known = Sameness(in_order=in_order)
        one, again, turned = (
            known.of_graph(graph)
            for graph in (summed(turned=False), summed(turned=False), summed(turned=True))
        )
        assert one == again
        assert (one == turned) is not in_order


def _alike_in_loops(depth: int, first: Any, second: Any, start: Any) -> Any:
    """A loop of two states alike but for their sequences, with such a loop in each step."""
    if depth == 0:
        return pt.tanh(start)

    def step(a: Any, b: Any, p: Any, q: Any) -> list[Any]:
        inside = _alike_in_loops(depth - 1, first, second, p + q)
        return [p * a + inside, q * b + inside]

    p, q = scan(step, sequences=[first, second], outputs_info=[start, start])
    return pt.sin(p[-1]) + q[-1]


def _visits(monkeypatch: pytest.MonkeyPatch, depth: int) -> int:
    """Count the nodes that exact keys of loops in loops visit."""
    inputs = [*pt.dvectors("s", "t"), pt.dscalar("x")]
    result = _alike_in_loops(depth, *inputs)
    visits = 0
    add = Digests.add

    def counted(self: Digests, node: Apply) -> None:
        nonlocal visits
        visits += 1
        add(self, node)

    with monkeypatch.context() as patch:
        patch.setattr(Digests, "add", counted)
        Digests(inputs, Sameness(exact=True)).of(result)
    return visits


def test_a_loop_in_a_body_is_refined_once_for_all_rounds_of_the_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = _visits(monkeypatch, 3), _visits(monkeypatch, 6)
    assert many < 2**2.5 * few, "the square of the levels at most, not a power of 2"


def test_exact_keys_of_loops_in_loops_are_blind_to_where_slots_stand() -> None:
    s, t, x = *pt.dvectors("s", "t"), pt.dscalar("x")
    digests = Digests([s, t, x], Sameness(exact=True))
    one, other = _alike_in_loops(3, s, t, x), _alike_in_loops(3, s, t, x)
    assert digests.of(one) == digests.of(other)
    # The loops of both are fed the same, crossed over.
    crossed = _alike_in_loops(3, t, s, x)
    assert digests.of(one) != digests.of(crossed)
