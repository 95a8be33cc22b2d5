"""Values of slots stand at the ports of the loop that was traced, and at no other."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

import scanopt_cli as so
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.page.contents import slot_values
from scanopt_cli.page.contents.slot_values import traced, values_text, with_values
from scanopt_cli.page.contents.stages import picture_of
from scanopt_cli.page.picture import Picture
from scanopt_cli.tracing.result import SlotTrace
from support.drawn_graphs import gradient, walk
from support.graph_building import scan


def values_of(picture: Picture) -> dict[str, dict[str, str]]:
    return {
        box.label: {port.name: port.values for port in box.ports}
        for level in picture.levels.values()
        for box in level.boxes
        if box.ports
    }


def slot(values: list[float]) -> SlotTrace:
    return SlotTrace(name="h", kind="sit_sot", values=np.asarray(values))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, 2.0, 3.0], "first 1, last 3, all 1..3 ▁▅█"),
        ([1.0, np.nan, 3.0], "first 1, last 3, all 1..3, 1 NaN ▁×█"),
        ([0.5], "first 0.5, last 0.5, all 0.5 ▁"),
        ([], "no step was run"),
    ],
)
def test_values_in_short(values: list[float], text: str) -> None:
    assert values_text(slot(values)) == text


def test_a_constant_is_its_value() -> None:
    constant = SlotTrace(name="w", kind="non_seq", values=np.asarray(0.25), is_constant=True)
    assert values_text(constant) == "0.25"


def test_ports_have_the_values_that_trace_finds() -> None:
    graph = walk()
    graph = so.Graph(fgraph=graph.fgraph, recorded=((np.asarray([1.0, 2.0]), np.asarray(0.0)),))
    traced = so.trace(graph)
    found = values_of(with_values(picture_of(graph), traced))["walk"]
    h = [np.tanh(1.0), np.tanh(np.tanh(1.0) * 0.5 + 2.0)]
    assert found["x"].startswith("first 1, last 2, all 1..2")
    assert found["h"].startswith(f"first {h[0]:.6g}, last {h[1]:.6g}")
    assert found["steps"] == ""


def test_each_tap_of_a_mit_mot_is_told() -> None:
    graph = gradient()
    found = values_of(with_values(picture_of(graph), so.trace(graph)))
    (backward,) = (ports for name, ports in found.items() if name.startswith("grad"))
    mit_mots = [text for name, text in backward.items() if "mit_mot" in name]
    assert mit_mots
    assert all("first" in text for text in mit_mots)


def test_boxes_that_share_a_level_have_no_values_in_it() -> None:
    """A loop in an inner graph that is called twice is drawn once, and traced on other values."""
    made = walk()
    inner = OpFromGraph(made.inputs, made.outputs)
    x, h = pt.vector("x"), pt.scalar("h")
    for outputs, is_told in (([inner(x, h)], True), ([inner(x, h), inner(x * 2, h)], False)):
        graph = as_graph(([x, h], outputs))
        found = values_of(with_values(picture_of(graph), so.trace(graph)))["walk"]
        assert any(found.values()) is is_told


def test_a_picture_without_stages_stays_as_it_is() -> None:
    empty = Picture(stages=())
    assert with_values(empty, so.trace(walk())) is empty


def test_a_loop_inside_of_another_is_run_in_its_first_step() -> None:
    x = pt.matrix("x")
    rows = scan(
        lambda row: scan(lambda a, s: s * a, sequences=[row], outputs_info=[row[0]], name="in")[-1],
        sequences=[x],
        name="out",
    )
    graph = as_graph(([x], [rows]))
    recorded = ((np.asarray([[2.0, 3.0], [5.0, 7.0]]),),)
    graph = so.Graph(fgraph=graph.fgraph, recorded=recorded)
    trace = traced(graph, seed=0, timeout=60)
    assert [loop.title for loop in trace.loops] == ["out", "out/in"]
    found = values_of(with_values(picture_of(graph), trace))
    assert "in step 0 of out: first 2, last 3, all 2..3 ▁█" in found["in"].values()
    assert "in step 0 of out: first 4, last 12, all 4..12 ▁█" in found["in"].values()
    assert not any("in step" in text for text in found["out"].values())


def test_of_many_loops_inside_the_first_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_values, "MOST_INNER", 0)
    x = pt.matrix("x")
    rows = scan(lambda row: scan(lambda a: a * 2, sequences=[row], name="in"), sequences=[x])
    assert len(traced(as_graph(([x], [rows])), seed=0, timeout=60).loops) == 1
