"""Changes of loops: slots by name, sizes once, bodies as graphs with their path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import Graph, GraphLike, from_io
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.reports.diff_report import diff_report
from support.printing import printed
from support.recurrences import base, tensor, variant
from support.telling import (
    ADDED,
    CHANGED,
    REMOVED,
    REWIRED,
    changes,
    notes_of,
    only_change,
    property_of,
    what_of,
)


def test_a_sequence_dropped_from_a_loop() -> None:
    found = changes(base.graph(), variant(sequences=("x", "z")))
    assert [(c.kind, c.where, what_of(c).partition(" of ")[0]) for c in found] == [
        (CHANGED, (), "Scan `rnn`"),
        (REMOVED, (), "seq `y`"),
        (REMOVED, ("rnn",), "Add"),
    ]
    assert property_of(found[0])[1:] == (
        "steps",
        "min(x.shape[0],y.shape[0],z.shape[0])",
        "min(x.shape[0],z.shape[0])",
    )


def test_a_state_dropped_from_the_middle() -> None:
    """The other two states stay what they are, though their places change."""
    found = changes(base.graph(), variant(states=("h", "c")))
    assert [(c.kind, c.where) for c in found] == [(REMOVED, ())] * 2
    slot = next(change for change in found if "Scan" in what_of(change))
    assert what_of(slot) == "sit_sot `b` of Scan `rnn`"
    assert notes_of(slot)[-1] == "with 1 node (Mul) inside"


def test_other_taps() -> None:
    found = changes(base.graph(), variant(taps=(-2, -1)))
    slot = "sit_sot `h` of Scan `rnn`"
    told = {
        change.aspect: (change.before, change.after) for change in found if what_of(change) == slot
    }
    steps = "min(x.shape[0],y.shape[0],z.shape[0])"
    assert told == {
        "kind": ("sit_sot", "mit_sot"),
        "taps": ("-1", "-2, -1"),
        "rows": (f"{steps}+1", f"{steps}+2"),
    }
    (inside,) = [change for change in found if change.where == ("rnn",)]
    assert (inside.kind, what_of(inside)) == (ADDED, "Add of h[t-2], h[t-1]")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (lambda n: 5, lambda n: 7, ("5", "7")),
        (lambda n: n, lambda n: n + 1, ("n", "n+1")),
        (lambda n: n, lambda n: pt.minimum(n, 3), ("n", "min(n,3)")),
        (lambda n: None, lambda n: n, ("min(x.shape[0],y.shape[0],z.shape[0])", "n")),
    ],
)
def test_another_step_count_is_told_once(
    before: Callable[[Variable], object],
    after: Callable[[Variable], object],
    told: tuple[str, str],
) -> None:
    """Not again at each buffer and each slice of a sequence that follow it."""
    change = only_change(variant(steps=before), variant(steps=after))
    assert property_of(change) == ("Scan `rnn`", "steps", *told)


def test_a_step_count_does_not_hide_another_direction() -> None:
    """The step of a slice is a whole number too, but no length."""
    x, n = tensor("x"), pt.lscalar("n")

    def graph(step: int, steps: Variable) -> GraphLike:
        return [x, n], [pytensor.scan(pt.exp, x[::step], n_steps=steps, return_updates=False)]

    found = changes(graph(1, n), graph(-1, n + 1))
    assert {change.aspect for change in found} == {"steps", "index"}


def test_shorter_buffers_are_told_as_rows() -> None:
    graph = variant(steps=lambda n: n)
    found = changes(graph, optimize(graph, "save-mem").graph)
    assert {(what_of(c), c.aspect, c.before, c.after) for c in found if c.aspect} == {
        (f"sit_sot `{state}` of Scan `rnn`", "rows", "n+1", "min(1,n)+1") for state in "hbc"
    }


def test_a_slot_that_is_fed_from_something_else() -> None:
    x, y, n = tensor("x"), tensor("y"), pt.lscalar("n")

    def graph(w: Variable) -> GraphLike:
        h = pytensor.scan(
            lambda h, w: h * w.sum(), outputs_info=[pt.ones(())], non_sequences=[w], n_steps=n,
            name="loop", return_updates=False,
        )  # fmt: skip
        return [x, y, n], [h + x.sum() + y.sum()]

    change = only_change(graph(x), graph(y))
    assert (change.kind, change.before, change.after) == (REWIRED, "x", "y")
    assert what_of(change).endswith("of Scan `loop`")


def test_options_of_a_loop() -> None:
    x = tensor("x")

    def graph(**options: object) -> GraphLike:
        start = pt.zeros((), dtype="float64")
        h = pytensor.scan(
            lambda a, h: a + h, x, [start], name="loop", return_updates=False, **options
        )
        return [x], [h]

    change = only_change(graph(), graph(truncate_gradient=3))
    assert property_of(change) == ("Scan `loop`", "gradient truncated after", "-1", "3")


def test_a_stop_condition() -> None:
    n = pt.lscalar("n")

    def graph(condition: bool) -> GraphLike:
        def step(h: Variable) -> object:
            update = h * 0.5
            return (update, until(update < 0.1)) if condition else update

        start = pt.ones((), dtype="float64")
        h = pytensor.scan(step, outputs_info=[start], n_steps=n, name="loop", return_updates=False)
        return [n], [h]

    change = only_change(graph(False), graph(True))
    assert property_of(change) == ("Scan `loop`", "stop condition", "no", "yes")


def test_slots_in_another_order_are_the_same() -> None:
    x, y, n = tensor("x"), tensor("y"), pt.lscalar("n")

    def graph(step: Callable[..., Variable], sequences: list[Variable]) -> GraphLike:
        loop = pytensor.scan(step, sequences, n_steps=n, name="loop", return_updates=False)
        return [x, y, n], [loop]

    straight = graph(lambda a, b: pt.exp(a) * b, [x, y])
    found = diff(straight, graph(lambda b, a: pt.exp(a) * b, [y, x]))
    assert found.same
    assert found.changes == ()
    assert not diff(straight, graph(lambda a, b: pt.exp(a) * b, [y, x])).same


def test_the_order_of_slots_is_not_told_beside_what_changed() -> None:
    found = changes(base.graph(), variant(states=("c", "h", "b"), factor=0.75))
    (inside,) = [change for change in found if change.where]
    assert (inside.where, inside.before, inside.after) == (("rnn",), "0.5", "0.75")
    # The sum of the last states is taken in another order, and that may round otherwise.
    assert {change.kind for change in found if not change.where} == {REWIRED}


def nested(factor: float) -> Graph:
    x, n = tensor("x"), pt.lscalar("n")

    def step(a: Variable) -> Variable:
        inner = pytensor.scan(
            lambda h: pt.tanh(factor * h), outputs_info=[a], n_steps=n, name="inner",
            return_updates=False,
        )  # fmt: skip
        return inner[-1]

    return from_io([x, n], [pytensor.scan(step, x, name="outer", return_updates=False)])


def test_a_change_in_a_nested_body_is_told_with_its_path() -> None:
    change = only_change(nested(0.5), nested(0.25))
    assert change.where == ("outer", "inner")
    assert (change.aspect, change.before, change.after) == ("constant", "0.5", "0.25")


def test_a_change_in_the_body_of_an_op_from_graph() -> None:
    x = tensor("x")

    def graph(factor: float) -> GraphLike:
        u = tensor("u")
        return [x], [OpFromGraph([u], [pt.exp(u * factor)], name="wrapped")(x)]

    change = only_change(graph(2.0), graph(3.0))
    assert (change.where, change.before, change.after) == (("wrapped",), "2.0", "3.0")


def test_a_graph_that_is_applied_to_each_entry_of_a_batch() -> None:
    x, batch = tensor("x"), tensor("x", 2)
    u = tensor("u")
    deduplicated = OpFromGraph([u], [pt.exp(u).sum()], name="wrapped")(x)
    (each,) = vectorize_graph([deduplicated], replace={x: batch})
    found = changes(([x], [deduplicated]), ([batch], [each]))
    assert {(c.aspect, c.before, c.after) for c in found} == {
        ("type", "float64[?]", "float64[?, ?]"),
        ("applied by", "OpFromGraph", "Blockwise"),
    }


def test_a_change_in_a_batched_loop() -> None:
    batch = tensor("batch", 2)

    def graph(factor: float) -> GraphLike:
        graph = from_io(*_cumulated(factor))
        (output,) = vectorize_graph(graph.outputs, replace={graph.inputs[0]: batch})
        return [batch], [output]

    def _cumulated(factor: float) -> tuple[list[Variable], list[Variable]]:
        x = tensor("x")
        start = pt.zeros((), dtype="float64")
        h = pytensor.scan(
            lambda a, h: factor * a + h, x, [start], name="loop", return_updates=False
        )
        return [x], [h]

    change = only_change(graph(2.0), graph(3.0))
    assert (change.where, change.before, change.after) == (("loop",), "2.0", "3.0")


def test_a_loop_that_came_is_told_with_the_size_of_its_body() -> None:
    forward = base.graph()
    found = changes(forward, replace(base).graph(gradient=True))
    loop = next(change for change in found if what_of(change) == "Scan `grad_of_rnn`")
    assert loop.kind is ADDED
    assert "nodes inside" in notes_of(loop)[0]


def test_a_dropped_state_of_a_differentiated_loop() -> None:
    """In the gradient, a few slots and the places where gradients are summed."""
    before, after = base.graph(gradient=True), replace(base, states=("h", "c")).graph(gradient=True)
    found = changes(before, after)
    assert {change.kind for change in found} == {REMOVED}
    assert len(found) <= 10


def test_loops_of_one_name_are_numbered() -> None:
    x = tensor("x")

    def graph(factor: float) -> GraphLike:
        first = pytensor.scan(pt.exp, x, name="twin", return_updates=False)
        second = pytensor.scan(lambda a: pt.tanh(a * factor), x, name="twin", return_updates=False)
        return [x], [first, second]

    (where,) = {change.where for change in changes(graph(2.0), graph(3.0))}
    assert where in {("twin#1",), ("twin#2",)}


def wide(sequences: tuple[str, ...]) -> Graph:
    """A graph of 200 nodes around the loop."""

    def after(total: Variable) -> Variable:
        for _ in range(75):
            total = pt.tanh(total) * 0.5
        return total

    return variant(sequences=sequences, after=after)


def test_a_dropped_sequence_in_two_hundred_nodes_is_a_handful_of_lines() -> None:
    before, after = wide(("x", "y", "z")), wide(("x", "z"))
    assert len(before.fgraph.apply_nodes) >= 200
    lines = printed(diff_report(diff(before, after))).strip().splitlines()
    assert len(lines) <= 8, "\n".join(lines)
    short = printed(diff_report(diff(before, after), lines=40)).strip().splitlines()
    assert len(short) <= 6, "\n".join(short)
