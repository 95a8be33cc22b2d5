"""Each kind of change is told as exactly what it is, and nothing more."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli.diff.comparing import diff
from scanopt_cli.diff.trees import tree as tree_of
from scanopt_cli.ir.graph import from_io
from support.recurrences import base, chain, tensor, variant
from support.telling import (
    ADDED,
    CHANGED,
    REMOVED,
    RENAMED,
    REWIRED,
    changes,
    notes_of,
    only_change,
    property_of,
    what_of,
)


def test_a_graph_is_the_same_as_itself_and_as_its_rebuilt_twin() -> None:
    for other in (base.graph(), variant()):
        found = diff(base.graph(), other)
        assert found.same
        assert found.changes == ()
        assert found.digest_before == found.digest_after
        assert found.before == found.after


def test_the_order_of_building_and_the_order_of_two_operands_do_not_count() -> None:
    x, y = tensor("x"), tensor("y")
    first, second = pt.exp(x), pt.tanh(y)
    u, v = tensor("x"), tensor("y")
    later, earlier = pt.tanh(v), pt.exp(u)
    assert diff(([x, y], [first * second]), ([u, v], [later * earlier])).same


def test_a_renamed_loop_is_the_same_and_told_as_renamed() -> None:
    found = diff(base.graph(), variant(name="gru"))
    assert found.same
    (change,) = found.changes
    assert change.kind is RENAMED
    assert (what_of(change), change.before, change.after) == ("Scan `rnn`", "rnn", "gru")
    assert not diff(base.graph(), variant(name="gru"), names=True).same


def test_a_renamed_loop_is_told_beside_what_else_changed() -> None:
    renamed, changed = changes(base.graph(), variant(name="gru", factor=0.75))
    assert (renamed.kind, renamed.before, renamed.after) == (RENAMED, "rnn", "gru")
    assert (changed.where, changed.before, changed.after) == (("rnn",), "0.5", "0.75")


def test_a_renamed_input_is_told_only_where_names_are_asked_for() -> None:
    x, u = tensor("x"), tensor("u")
    before, after = ([x], [pt.exp(x)]), ([u], [pt.exp(u)])
    assert changes(before, after) == ()
    assert only_change(before, after, names=True).kind is RENAMED
    assert not diff(before, after, names=True).same


def test_a_replaced_constant() -> None:
    change = only_change(base.graph(), variant(factor=0.75))
    assert change.kind is CHANGED
    assert change.where == ("rnn",)
    assert (change.aspect, change.before, change.after) == ("constant", "0.5", "0.75")


def test_a_constant_that_many_nodes_read_is_told_once_with_a_count() -> None:
    before = chain([lambda v: v + 2.0] * 30)
    change = only_change(before, chain([lambda v: v + 3.0] * 30))
    assert (change.aspect, change.before, change.after) == ("constant", "2.0", "3.0")
    assert change.count == 30


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (np.zeros(100), np.eye(1, 100, 7)[0], "1 of 100 entries differ, first [7]: 0.0 → 1.0"),
        (np.array([0.0] * 50), np.array([0.0] * 49 + [-0.0]), "first [49]: 0.0 → -0.0"),
    ],
)
def test_a_long_constant_tells_where_it_differs(
    before: np.ndarray, after: np.ndarray, told: str
) -> None:
    x = tensor("x")
    change = only_change(([x], [x * before]), ([x], [x * after]))
    assert told in notes_of(change)[0]


def test_constants_that_only_differ_in_type_tell_their_types() -> None:
    x = tensor("x")
    change = only_change(
        ([x], [x * pt.constant(2, dtype="int8")]), ([x], [x * pt.constant(2, dtype="int16")])
    )
    assert (change.before, change.after) == ("2 (int8)", "2 (int16)")


def test_another_operation_at_the_same_place() -> None:
    change = only_change(base.graph(), variant(activation=pt.sigmoid))
    assert (change.kind, change.where) == (CHANGED, ("rnn",))
    assert (change.aspect, change.before, change.after) == ("op", "Tanh", "Sigmoid")


def test_another_property_of_an_operation() -> None:
    m = tensor("m", 2)
    change = only_change(([m], [m.sum(axis=0)]), ([m], [m.sum(axis=1)]))
    assert property_of(change) == ("Sum{axis=0} of m", "axis", "(0,)", "(1,)")


def test_a_node_put_in_between() -> None:
    change = only_change(base.graph(), variant(after=pt.neg))
    assert change.kind is ADDED
    assert what_of(change).startswith("Neg of ")
    assert notes_of(change)[0].startswith("output 0 reads it instead of ")


def test_a_subgraph_in_place_of_a_node() -> None:
    x, w = tensor("x"), tensor("w")
    before, after = pt.tanh(pt.sqrt(x)), pt.tanh(pt.dot(pt.outer(x, w), x))
    change = only_change(([x, w], [before]), ([x, w], [after]))
    assert change.kind is CHANGED
    assert change.before == "Sqrt of x"
    assert change.after is not None
    assert "of" in change.after


def test_a_moved_subgraph_is_rewired_and_not_told_again() -> None:
    x, y = tensor("x"), tensor("y")
    moved = pt.exp(pt.tanh(x) * 3.0)
    before = [pt.sqrt(moved) + 1.0, pt.log(y) * 2.0]
    after = [pt.sqrt(y) + 1.0, pt.log(moved) * 2.0]
    found = changes(([x, y], before), ([x, y], after))
    assert [change.kind for change in found] == [REWIRED, REWIRED]
    assert sorted((change.before, change.after) for change in found) == [
        ("Exp(Mul(…))", "y"),
        ("y", "Exp(Mul(…))"),
    ]


def test_outputs_that_change_places() -> None:
    x = tensor("x")
    found = changes(([x], [pt.exp(x), pt.tanh(x)]), ([x], [pt.tanh(x), pt.exp(x)]))
    assert [(c.kind, what_of(c), c.before, c.after) for c in found] == [
        (REWIRED, "output 0", "Exp(x)", "Tanh(x)"),
        (REWIRED, "output 1", "Tanh(x)", "Exp(x)"),
    ]


def test_a_new_output_with_all_that_only_it_needs() -> None:
    x = tensor("x")
    change = only_change(([x], [pt.exp(x)]), ([x], [pt.exp(x), pt.tanh(pt.sqrt(x))]))
    assert (change.kind, what_of(change)) == (ADDED, "output 1: Tanh(Sqrt(x))")
    assert notes_of(change) == ("with 2 nodes (Tanh, Sqrt)",)


def test_inputs_belong_together_by_name() -> None:
    x, y = tensor("x"), tensor("y")
    moved = only_change(([x, y], [x - y]), ([y, x], [x - y]))
    assert property_of(moved) == ("inputs", "order", "x, y", "y, x")
    dropped = only_change(([x, y], [pt.exp(y)]), ([y], [pt.exp(y)]))
    assert (dropped.kind, what_of(dropped)) == (REMOVED, "input `x`")


def test_another_type_of_an_input_is_told_there_and_not_at_what_reads_it() -> None:
    x, single = tensor("x"), tensor("x", dtype="float32")
    change = only_change(([x], [pt.exp(pt.tanh(x))]), ([single], [pt.exp(pt.tanh(single))]))
    assert property_of(change) == ("input `x`", "type", "float64[?]", "float32[?]")


def test_another_index_is_told_as_a_whole() -> None:
    x, n = tensor("x"), pt.lscalar("n")
    change = only_change(([x, n], [x[1:n]]), ([x, n], [x[2 : n + 1]]))
    assert (change.aspect, change.before, change.after) == ("index", "[1:n]", "[2:Add(n, 1)]")


def test_set_in_place_of_increment() -> None:
    x = tensor("x")
    set_, inc = pt.set_subtensor(x[1:], 0.0), pt.inc_subtensor(x[1:], 0.0)
    change = only_change(([x], [set_]), ([x], [inc]))
    assert property_of(change)[1:] == ("set_instead_of_inc", "True", "False")


def test_what_an_operation_repeats_is_no_change() -> None:
    """Of equal nodes one is compared, however often either graph has it."""
    x = tensor("x")
    deduplicated, again = pt.exp(x), pt.exp(x)
    before = [x], [pt.tanh(deduplicated) + deduplicated, pt.sin(x)]
    after = [x], [pt.tanh(deduplicated) + again, pt.cos(x)]
    change = only_change(before, after)
    assert (change.before, change.after) == ("Sin", "Cos")


def test_what_becomes_equal_is_told_as_one_removed() -> None:
    x, y = tensor("x"), tensor("y")
    change = only_change(([x, y], [pt.exp(x) - pt.exp(y + 1.0)]), ([x, y], [pt.exp(x) - pt.exp(x)]))
    assert (change.kind, what_of(change)) == (REMOVED, "Exp of Add(y, 1.0)")
    assert notes_of(change)[0] == "input 1 of Sub reads Exp(x) instead"


def test_inputs_without_a_name_belong_together_by_who_reads_them() -> None:
    """Places shift where one is gone."""

    def graph(kept: str) -> tuple[list[Variable], list[Variable]]:
        inputs = {name: tensor("") for name in kept}
        operators = {"a": pt.exp, "b": pt.tanh, "c": pt.sqrt}
        return list(inputs.values()), [operators[name](v) for name, v in inputs.items()]

    found = changes(graph("abc"), graph("bc"))
    assert [(c.kind, what_of(c).split(":")[0]) for c in found] == [
        (REMOVED, "input `input 0`"),
        (REMOVED, "output 0"),
    ]


def test_arrays_are_told_without_blanks_that_line_them_up() -> None:
    x = tensor("x")
    change = only_change(([x], [x * np.array([0.1, -0.25])]), ([x], [x * np.array([0.1, 0.25])]))
    assert (change.before, change.after) == ("[0.1, -0.25]", "[0.1, 0.25]")


def test_how_much_is_unchanged() -> None:
    """Each node of a chain but the changed one, and all nodes of equal graphs."""
    before, after = chain([pt.exp] * 5), chain([pt.exp] * 2 + [pt.tanh] + [pt.exp] * 2)
    assert diff(before, after).unchanged == 4
    assert diff(before, before).unchanged == 5
    loops = base.graph()
    nodes = diff(loops, loops).before
    assert diff(loops, loops).unchanged == nodes.outer_nodes + nodes.inner_nodes


def test_the_graphs_are_left_as_they_were() -> None:
    """Comparing merges what they repeat, in copies."""
    x = tensor("x")
    named = pt.exp(x)
    named.name = "named"
    graph = from_io([x], [pt.tanh(pt.exp(x)) + named])
    nodes, tree = set(graph.fgraph.apply_nodes), tree_of(graph.fgraph)
    for other in (graph, base.graph()):
        diff(graph, other)
        diff(other, graph)
    graph.fgraph.check_integrity()
    assert set(graph.fgraph.apply_nodes) == nodes
    assert tree_of(graph.fgraph) == tree
