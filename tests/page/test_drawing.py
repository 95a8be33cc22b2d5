"""The picture as data: what is on it, how it is folded, and what stays itself from pass to pass."""

from __future__ import annotations

from collections import defaultdict

import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.raise_op import Assert, CheckAndRaise

import scanopt_cli as so
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.page.grouping import MOST
from scanopt_cli.page.picture import Box, BoxKind, Group, Level, Picture
from support.drawn_graphs import gradient, many_loops, many_nodes, passes_of, picture, walk
from support.sample_building import samples
from support.tiers import deep


def first(drawn: Picture) -> Level:
    return drawn.levels[drawn.stages[0].level]


def boxes_of(level: Level, kind: BoxKind) -> list[Box]:
    return [box for box in level.boxes if box.kind is kind]


def leaves(member: int | Group) -> list[int]:
    if isinstance(member, int):
        return [member]
    return [n for inside in member.members for n in leaves(inside)]


def test_inputs_operations_loops_and_outputs_are_boxes() -> None:
    graph = walk()
    level = first(picture(graph))
    assert [box.label for box in boxes_of(level, BoxKind.INPUT)] == ["x", "h"]
    assert [box.label for box in boxes_of(level, BoxKind.LOOP)] == ["walk"]
    assert [box.type for box in boxes_of(level, BoxKind.OUTPUT)] == ["float64"]
    assert len(level.boxes) == len(graph.fgraph.apply_nodes) + 3


def test_edges_lead_to_boxes_that_are_there_and_ports_that_are() -> None:
    drawn = passes_of(gradient(), "grad")
    for level in drawn.levels.values():
        known = {box.id: box for box in level.boxes}
        seen: set[int] = set()
        for box in level.boxes:
            for edge in box.edges:
                assert edge.box in seen  # in topological order
                maker = known[edge.box]
                assert not maker.ports or edge.from_port < len(maker.ports)
                assert not box.ports or edge.port < len(box.ports)
            seen.add(box.id)


def test_slots_are_ports_that_say_what_inspect_says() -> None:
    graph = walk()
    (loop,) = boxes_of(first(picture(graph)), BoxKind.LOOP)
    (report,) = so.inspect(graph).scans
    *slots, steps = loop.ports
    assert [(p.name, p.kind, p.inside, p.rows) for p in slots] == [
        (s.name, s.kind, s.inside, s.rows or "") for s in report.slots
    ]
    assert (steps.kind, steps.fed_by) == ("steps", report.steps)


def test_a_body_says_which_slot_each_of_its_ends_belongs_to() -> None:
    drawn = picture(walk())
    (loop,) = boxes_of(first(drawn), BoxKind.LOOP)
    body = drawn.levels[loop.body]
    for box in body.boxes:
        if box.kind in (BoxKind.INPUT, BoxKind.OUTPUT):
            assert box.label.startswith(loop.ports[box.slot].name)


def test_buffers_have_sizes_to_scale_with_unknown_lengths_as_100() -> None:
    (loop,) = boxes_of(first(picture(walk())), BoxKind.LOOP)
    assert {port.name: port.size for port in loop.ports if port.size} == {"h": 8 * 101}


def test_equal_bodies_are_one_level() -> None:
    drawn = picture(many_loops(15))
    bodies = {box.body for level in drawn.levels.values() for box in level.boxes if box.body}
    assert len(bodies) == 7


def test_an_inner_graph_has_ports_and_a_body() -> None:
    x = pt.vector("x")
    graph = as_graph(([x], OpFromGraph([x], [pt.exp(x)], name="wrapped")(x, return_list=True)))
    drawn = picture(graph)
    (box,) = boxes_of(first(drawn), BoxKind.GRAPH)
    assert [port.kind for port in box.ports] == ["input", "output"]
    assert [b.label for b in drawn.levels[box.body].boxes] == ["x", "exp", "output 0"]


def test_a_check_says_what_it_raises_and_when() -> None:
    x = pt.vector("x")
    checked = CheckAndRaise(ValueError, "x is <empty>")(x, pt.gt(x.shape[0], 0))
    level = first(picture(as_graph(([x], [pt.exp(checked)]))))
    raises = {box.label: box.raises for box in level.boxes}
    assert raises["CheckAndRaise"] == "raises ValueError unless its conditions hold: x is <empty>"
    assert raises["exp"] == ""
    plain = first(picture(as_graph(([x], [Assert("no")(x, pt.gt(x.shape[0], 0))]))))
    assert "raises AssertionError unless its conditions hold: no" in {b.raises for b in plain.boxes}


def whole(level: Level, box: Box) -> str:
    """Return what a box computes, as the page puts it together."""
    known = {one.id: one for one in level.boxes}
    makers = {edge.port: known[edge.box] for edge in box.edges}
    if not box.whole:
        return box.text
    return "".join(p if isinstance(p, str) else f"({whole(level, makers[p])})" for p in box.whole)


@pytest.mark.parametrize("graph", [many_nodes(12), gradient()])
def test_of_an_expression_that_is_cut_nothing_is_lost(graph: so.Graph) -> None:
    n_cut = 0
    for level in picture(graph).levels.values():
        for box in boxes_of(level, BoxKind.OPERATION):
            n_cut += "…" in box.text
            assert bool(box.whole) == ("…" in box.text)
            assert "…" not in whole(level, box)
    assert n_cut


def test_a_whole_expression_is_that_of_the_graph() -> None:
    x, y = pt.vectors("x", "y")
    deep = pt.tanh(pt.exp(pt.sin(x) * y) + 1)
    level = first(picture(as_graph(([x, y], [pt.cos(deep)]))))
    (box,) = (one for one in level.boxes if one.label == "cos")
    assert box.text == "cos(tanh(…))"
    told = whole(level, box).replace("(", "").replace(")", "")
    assert told == "costanhexpsinx * y + 1"


def test_a_name_that_looks_like_a_place_is_a_name() -> None:
    x, y = pt.vector("\ue0000\ue000"), pt.vector("y")
    deep = pt.exp(pt.sin(pt.cos(y)))
    level = first(picture(as_graph(([x, y], [x + deep]))))
    (box,) = (one for one in level.boxes if one.label == "add")
    assert "…" in box.text
    assert box.whole == ()


@pytest.mark.parametrize("graph", [many_nodes(20), gradient(), many_nodes(300), many_loops(60)])
def test_folded_levels_are_small_hold_each_box_once_and_have_no_cycle(graph: so.Graph) -> None:
    for level in picture(graph).levels.values():
        waiting: list[tuple[int | Group, ...]] = [level.shown]
        assert sorted(n for m in level.shown for n in leaves(m)) == sorted(
            box.id for box in level.boxes
        )
        while waiting:
            members = waiting.pop()
            middle = [m for m in members if isinstance(m, Group)]
            assert len(members) <= MOST + 2 * MOST
            assert _is_acyclic(level, level.shown if members is level.shown else members)
            waiting += [m.members for m in middle]


def _is_acyclic(level: Level, members: tuple[int | Group, ...]) -> bool:
    """Whether members can be drawn in one direction."""
    part = {n: place for place, member in enumerate(members) for n in leaves(member)}
    reads: dict[int, set[int]] = defaultdict(set)
    for box in level.boxes:
        if box.id in part:
            reads[part[box.id]] |= {part[e.box] for e in box.edges if e.box in part}
    for place in reads:
        reads[place].discard(place)
    left = set(range(len(members)))
    while left:
        ready = {place for place in left if not reads[place] & left}
        if not ready:
            return False
        left -= ready
    return True


def test_a_large_group_opens_to_groups_again() -> None:
    (group,) = [m for m in first(picture(many_nodes(3000))).shown if isinstance(m, Group)]
    assert group.count == 3000
    assert len(group.members) <= MOST
    assert all(isinstance(member, Group) for member in group.members)


def test_a_box_keeps_its_number_when_a_pass_leaves_it_alone() -> None:
    graph = gradient()
    again = picture(graph, graph.copy())
    ids = [[box.id for box in again.levels[stage.level].boxes] for stage in again.stages]
    assert ids[0] == ids[1]


def test_what_a_pass_adds_has_numbers_of_its_own() -> None:
    drawn = passes_of(gradient(), "mit-mot-to-sit-sot")
    before, after = (
        {box.id: box for box in drawn.levels[stage.level].boxes} for stage in drawn.stages[:2]
    )
    kept = before.keys() & after.keys()
    assert {"walk", "grad_of_walk"} <= {before[n].label for n in kept}
    assert kept != before.keys()
    assert kept != after.keys()
    pullback = next(n for n in kept if before[n].label == "grad_of_walk")
    assert before[pullback].body != after[pullback].body
    inside = [{b.id for b in drawn.levels[side[pullback].body].boxes} for side in (before, after)]
    assert inside[0] & inside[1]


@pytest.mark.parametrize("name", ["seed_grad", "nested", *deep("kalman_dlogp")])
def test_every_stage_of_a_sample_is_drawn(name: str) -> None:
    drawn = passes_of(samples()[name], "grad")
    assert len(drawn.stages) > 2
    for stage in drawn.stages:
        numbers = [box.id for box in drawn.levels[stage.level].boxes]
        assert len(numbers) == len(set(numbers))
