"""Loops that draw the same numbers in every step are told of, and no others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.tensor.random.type import random_generator_type

import scanopt_cli as so
from scanopt_cli.analysis.inspection import inspect_graph
from scanopt_cli.analysis.same_draws import same_draws
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.remarks import Code, RemarkKind
from scanopt_cli.reports.remark_text import text_of
from support.compiled_ways import VM
from support.graph_building import scan

x = pt.dscalar("x")


def _rng() -> Variable:
    return random_generator_type("rng")


type Built = tuple[list[Variable], list[Variable]]


def _fixed() -> Built:
    rng = _rng()
    step = lambda h, rng: h + pt.random.normal(rng=rng)  # noqa: E731
    walk = scan(step, outputs_info=[x], non_sequences=[rng], n_steps=4, name="walk")
    return [x, rng], [walk]


def _in_a_loop() -> Built:
    rng = _rng()

    def outer(h: Any, rng: Any) -> Any:
        step = lambda g, rng: g + pt.random.normal(rng=rng)  # noqa: E731
        return scan(step, outputs_info=[h], non_sequences=[rng], n_steps=3, name="inner")[-1]

    rows = scan(outer, outputs_info=[x], non_sequences=[rng], n_steps=2, name="outer")
    return [x, rng], [rows]


def _in_a_graph() -> Built:
    inputs, outputs = _fixed()
    return inputs, [OpFromGraph(inputs, outputs, name="model")(*inputs)]


def _by_a_graph() -> Built:
    """A step draws in a graph of its own."""
    rng, g = _rng(), pt.dscalar("g")
    draw = OpFromGraph([g, rng], [g + pt.random.normal(rng=rng)], name="draw")
    walk = scan(draw, outputs_info=[x], non_sequences=[rng], n_steps=4, name="walk")
    return [x, rng], [walk]


def _as_traced_loop() -> Built:
    graph = so.optimize(_fixed(), "scan-to-loop").graph
    return list(graph.inputs), list(graph.outputs)


SAME: dict[str, tuple[Callable[[], Built], list[str]]] = {
    "in a step": (_fixed, ["walk"]),
    "in a loop in a loop": (_in_a_loop, ["outer", "outer/inner"]),
    "in a loop in a graph": (_in_a_graph, ["model/walk"]),
    "by a graph in a step": (_by_a_graph, ["walk"]),
    "in a TracedLoop": (_as_traced_loop, ["walk"]),
}


@pytest.mark.parametrize(("build", "loops"), SAME.values(), ids=SAME)
def test_a_generator_that_no_step_changes_is_told_of(
    build: Callable[[], Built], loops: list[str]
) -> None:
    found = same_draws(as_graph(build()).fgraph)
    assert [remark.scan for remark in found] == loops
    assert {(remark.code, remark.kind) for remark in found} == {
        (Code.SAME_DRAWS, RemarkKind.WARNING)
    }
    name = "`non_seq[0]`" if "model" in loops[0] else "`rng`"  # bodies have lost the names
    assert {text_of(remark) for remark in found} == {
        f"every step draws the same numbers from {name}; carry the generator as a state"
    }


def _carried() -> Built:
    rng = _rng()

    def step(h: Any, state: Any) -> Any:
        after, noise = pt.random.normal(rng=state, return_next_rng=True)
        return h + noise, after

    walk, last = scan(step, outputs_info=[x, rng], n_steps=4, name="walk")
    return [x, rng], [walk, last]


def _before() -> Built:
    rng = _rng()
    after, noise = pt.random.normal(rng=rng, size=(4,), return_next_rng=True)
    walk = scan(lambda e, h: h + e, sequences=[noise], outputs_info=[x], name="walk")
    return [x, rng], [walk, after]


def _once_before() -> Built:
    """The same number in every step, which is drawn outside and so is seen to be the same."""
    rng = _rng()
    noise = pt.random.normal(rng=rng)
    step = lambda h, e: h + e  # noqa: E731
    walk = scan(step, outputs_info=[x], non_sequences=[noise], n_steps=4, name="walk")
    return [x, rng], [walk]


def _unread() -> Built:
    rng = _rng()
    step = lambda h, rng: h * 2  # noqa: E731
    walk = scan(step, outputs_info=[x], non_sequences=[rng], n_steps=4, strict=True, name="walk")
    return [x, rng], [walk]


def _without_a_loop() -> Built:
    rng = _rng()
    g = pt.dscalar("g")
    return [x, rng], [OpFromGraph([g, rng], [g + pt.random.normal(rng=rng)])(x, rng)]


@pytest.mark.parametrize("build", [_carried, _before, _once_before, _unread, _without_a_loop])
def test_others_are_not(build: Callable[[], Built]) -> None:
    graph = as_graph(build())
    assert same_draws(graph.fgraph) == ()
    assert not any(s.same_draws for loop in inspect_graph(graph.fgraph).scans for s in loop.slots)
    assert so.optimize(graph, "default").warnings == ()


def test_optimize_and_inspect_tell() -> None:
    graph = as_graph(_fixed())
    (warning,) = so.optimize(graph, "default").warnings
    assert (warning.scan, warning.slots) == ("walk", ("rng",))
    (loop,) = inspect_graph(graph.fgraph).scans
    assert [slot.name for slot in loop.slots if slot.same_draws] == ["rng"]


@pytest.mark.parametrize("preset", ["default", "loop"])
def test_what_is_compiled_is_warned_of_once(preset: str) -> None:
    inputs, outputs = _fixed()
    with so.enabled(preset) as done, pytest.warns(UserWarning, match="every step draws") as told:
        function = pytensor.function(inputs, outputs, mode=VM)
    assert [str(one.message) for one in told if "every step" in str(one.message)] == [
        "scanopt: walk: every step draws the same numbers from rng; carry the generator as a state"
    ]
    (remark,) = [one for each in done.compilations for one in each.warnings]
    assert remark.code is Code.SAME_DRAWS
    (walk,) = function(0.0, np.random.default_rng(0))
    assert np.allclose(np.diff(walk), np.diff(walk)[0])


def test_what_is_compiled_right_is_not_warned_of() -> None:
    inputs, outputs = _carried()
    with so.enabled("default") as done, warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*every step draws")
        pytensor.function(inputs, outputs, mode=VM)
    assert not any(each.warnings for each in done.compilations)
