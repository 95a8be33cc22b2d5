"""The first NaN or infinity that stays: planted in steps of loops, and told with what made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph
from support.graph_building import graph_of, optimized, scan

pytestmark = pytest.mark.usefixtures("evaluated_here")

N = 6
FORWARD: dict[str, tuple[Callable[[Any], Any], float, str, str]] = {
    "log": (pt.log, -0.5, "domain", "NaN"),
    "sqrt": (pt.sqrt, -2.0, "domain", "NaN"),
    "0/0": (lambda a: (a - 3.0) / (a - 3.0), 3.0, "domain", "NaN"),
    "arcsin": (pt.arcsin, 1.5, "domain", "NaN"),
    "log of 0": (pt.log, 0.0, "pole", "-inf"),
    "1/0": (lambda a: 1.0 / a, 0.0, "pole", "inf"),
    "exp": (pt.exp, 800.0, "overflow", "inf"),
    "square": (pt.sqr, 1e200, "overflow", "inf"),
}
"""What a step computes, the entry of the sequence for which it is bad, why, and what it gives."""
BACKWARD: dict[str, tuple[Callable[[Any], Any], float, Callable[[Any, float], Any]]] = {
    "log": (pt.log, 0.0, lambda a, bad: a > bad),
    "sqrt": (pt.sqrt, 0.0, lambda a, bad: a > bad),
    "1/0": (lambda a: 1.0 / a, 0.0, lambda a, bad: pt.neq(a, bad)),
    "arcsin": (pt.arcsin, 1.5, lambda a, bad: a < bad),
}
"""What the branch computes that a switch does not take, where it is bad, and the switch."""


def _planted(step: int, bad: float) -> np.ndarray:
    values = np.linspace(0.2, 0.9, N)
    values[step] = bad
    return values


def _forward(compute: Callable[[Any], Any]) -> Graph:
    v, x = pt.dvector("v"), pt.dscalar("x")
    return graph_of(
        scan(lambda a, y: compute(a) + 0.5 * y, sequences=[v], outputs_info=[x], name="forward")[-1]
    )


@pytest.mark.parametrize("step", [0, 3, N - 1])
@pytest.mark.parametrize("kind", FORWARD)
def test_planted_in_forward_loops(kind: str, step: int) -> None:
    compute, bad, why, value = FORWARD[kind]
    found = so.first_nan(_forward(compute), {"v": _planted(step, bad), "x": 1.0})
    assert found.is_bad
    node = found.node
    assert node is not None
    assert (node.loop, node.step, node.why, node.value) == ("forward", step, why, value)
    assert found.slot == "x of forward"
    assert not found.is_from_input
    assert found.reaches == ("output 0",)
    assert all(not read.is_bad for read in node.inputs)


@pytest.mark.parametrize("step", [0, 4])
@pytest.mark.parametrize("kind", FORWARD)
def test_planted_in_loops_by_scanopt(kind: str, step: int) -> None:
    compute, bad, why, value = FORWARD[kind]
    work, _ = optimized(_forward(compute), "scan-to-loop")
    found = so.first_nan(work, {"v": _planted(step, bad), "x": 1.0})
    assert found.node is not None
    assert (found.node.step, found.node.why, found.node.value) == (step, why, value)


@pytest.mark.parametrize("step", [0, 2, N - 1])
@pytest.mark.parametrize("kind", BACKWARD)
def test_planted_in_backward_loops(kind: str, step: int) -> None:
    """The branch is not taken, so the forward loop is right; its gradient is not."""
    compute, bad, is_good = BACKWARD[kind]
    v, x = pt.dvector("v"), pt.dscalar("x")
    ys = scan(
        lambda a, y: pt.switch(is_good(a, bad), compute(a), 0.0) + 0.5 * y,
        sequences=[v],
        outputs_info=[x],
        name="forward",
    )
    graph = graph_of(ys[-1], pytensor.grad(ys[-1], v))
    found = so.first_nan(graph, {"v": _planted(step, bad), "x": 1.0})
    node = found.node
    assert node is not None
    assert (node.loop, node.step) == ("grad_of_forward", N - 1 - step)
    assert "NaN" in node.value
    if kind != "sqrt":  # whose value is right
        assert "forward" in {one.loop for one in found.harmless}
    assert found.reaches == ("output 1",)


@pytest.mark.parametrize("is_lowered", [False, True])
@pytest.mark.parametrize("step", [0, 2, N - 1])
@pytest.mark.parametrize("kind", [kind for kind in BACKWARD if kind != "sqrt"])
def test_what_a_switch_hides(kind: str, step: int, is_lowered: bool) -> None:
    compute, bad, is_good = BACKWARD[kind]
    graph = _forward(lambda a: pt.switch(is_good(a, bad), compute(a), 0.0))
    if is_lowered:
        graph, _ = optimized(graph, "scan-to-loop")
    arguments = {"v": _planted(step, bad), "x": 1.0}
    assert not so.first_nan(graph, arguments).is_bad
    found = so.first_nan(graph, arguments, masked=True)
    assert found.is_bad
    assert found.node is not None
    assert (found.node.loop, found.node.step, found.slot) == ("forward", step, None)
    assert [read.is_bad for read in found.node.inputs] == [False] * len(found.node.inputs)
    assert found.reaches == ()


def test_what_a_loop_in_a_loop_hides() -> None:
    m, x = pt.dmatrix("m"), pt.dscalar("x")

    def row(r: Any) -> Any:
        def entry(a: Any, s: Any) -> Any:
            return s + pt.switch(a > 0, pt.log(a), 0.0)

        return scan(entry, sequences=[r], outputs_info=[x], name="inner")[-1]

    graph = graph_of(scan(row, sequences=[m], name="outer"))
    values = np.ones((3, 2))
    values[1] = 0.0
    assert not so.first_nan(graph, {"m": values, "x": 1.0}).is_bad
    found = so.first_nan(graph, {"m": values, "x": 1.0}, masked=True)
    assert found.node is not None
    assert (found.node.loop, found.node.step, found.node.why) == ("outer/inner", 0, "pole")
    assert [(one.loop, one.step) for one in found.node.outer_steps] == [("outer", 1)]


@pytest.mark.parametrize("kind", FORWARD)
def test_what_stays_is_found_among_what_is_masked(kind: str) -> None:
    compute, bad, _, _ = FORWARD[kind]
    arguments = {"v": _planted(3, bad), "x": 1.0}
    plain = so.first_nan(_forward(compute), arguments)
    found = so.first_nan(_forward(compute), arguments, masked=True)
    assert (found.node, found.slot, found.reaches) == (plain.node, plain.slot, plain.reaches)


@pytest.mark.parametrize("masked", [False, True])
def test_what_inputs_hold_is_no_node_s(masked: bool) -> None:
    arguments = {"v": _planted(1, np.nan), "x": 1.0}
    found = so.first_nan(_forward(pt.exp), arguments, masked=masked)
    assert (found.is_bad, found.is_from_input) == (True, True)


def test_nothing_is_masked() -> None:
    found = so.first_nan(_forward(pt.exp), {"v": np.ones(3), "x": 1.0}, masked=True)
    assert (found.is_bad, found.node, found.steps) == (False, None, 3)


def test_nothing_is_found() -> None:
    found = so.first_nan(_forward(pt.exp), {"v": np.ones(3), "x": 1.0})
    assert (found.is_bad, found.node, found.steps, found.harmless) == (False, None, 3, ())


def test_infinities_are_allowed() -> None:
    graph = _forward(pt.log)
    arguments = {"v": _planted(2, 0.0), "x": 1.0}
    assert so.first_nan(graph, arguments).is_bad
    assert not so.first_nan(graph, arguments, allow="inf").is_bad
    with pytest.raises(so.ScanoptError, match="--allow: 'nan' cannot be allowed; allow inf"):
        so.first_nan(graph, arguments, allow="nan")


def test_infinities_that_become_a_nan() -> None:
    x = pt.dscalar("x")
    graph = graph_of(scan(lambda y: y * 1e200 - y * 1e200, outputs_info=[x], n_steps=3))
    found = so.first_nan(graph, [1e200], allow="inf")
    assert found.node is not None
    assert (found.node.why, found.node.step) == ("indefinite", 0)


def test_masks_of_infinity() -> None:
    """A filter in logarithms starts with -inf, which the arguments hold."""
    start = pt.dvector("start")
    graph = graph_of(
        scan(lambda a: pt.logaddexp(a, a[::-1] - 1.0), outputs_info=[start], n_steps=3, name="hmm")
    )
    arguments = [np.array([0.0, -np.inf])]
    assert not so.first_nan(graph, arguments, allow="inf").is_bad
    found = so.first_nan(graph, arguments)
    assert [one.name for one in found.held_by] == ["start"]


def test_masks_that_are_constants() -> None:
    """They stay where a slot holds them, and are harmless where only the step does."""
    v = pt.dvector("v")

    def mask(a: Any) -> Any:
        return pt.switch(a > 0.5, a, -np.inf)

    arguments = [np.array([1.0, 0.0])]
    found = so.first_nan(graph_of(scan(mask, sequences=[v], name="masks")), arguments)
    assert found.node is not None
    assert (found.node.why, found.node.step, found.is_from_input) == ("constant", 1, False)
    taken = scan(lambda a: pt.exp(mask(a)), sequences=[v], name="masks")
    found = so.first_nan(graph_of(taken), arguments)
    assert not found.is_bad
    assert [(one.value, one.loop, one.steps) for one in found.harmless] == [("-inf", "masks", 1)]


def test_a_start_that_is_a_constant() -> None:
    start = pt.constant(np.array([0.0, -np.inf]))
    ys = scan(lambda a: a * 2.0, outputs_info=[start], n_steps=pt.lscalar("n"), name="f")
    found = so.first_nan(graph_of(ys), [3])
    assert found.node is not None
    assert (found.node.loop, found.node.why, found.is_from_input) == (None, "constant", False)


def test_what_the_inputs_hold_is_named() -> None:
    graph = _forward(lambda a: a * 2.0)
    found = so.first_nan(graph, {"v": _planted(3, np.nan), "x": 1.0})
    assert found.is_from_input
    assert found.node is not None
    assert (found.node.why, found.node.step) == ("passed on", 3)
    assert [(one.name, one.is_bad) for one in found.held_by] == [("v", True)]


def test_what_is_made_outside_of_the_loop() -> None:
    v, x = pt.dvector("v"), pt.dscalar("x")
    ys = scan(lambda a, y: a + y, sequences=[pt.sqrt(v)], outputs_info=[x], name="sums")
    found = so.first_nan(graph_of(ys), {"v": _planted(2, -1.0), "x": 0.0})
    assert found.node is not None
    assert (found.node.loop, found.node.why, found.is_from_input) == (None, "domain", False)
    assert found.node.name == "sqrt(v)"
    assert "at [2]" in found.node.value
    assert found.slot == "x of sums"


def test_what_is_made_after_the_loop() -> None:
    v, x = pt.dvector("v"), pt.dscalar("x")
    ys = scan(lambda a, y: a + y, sequences=[v], outputs_info=[x], name="sums")
    found = so.first_nan(graph_of(pt.log(ys[-1] - ys[-1])), {"v": np.ones(3), "x": 0.0})
    assert found.node is not None
    assert (found.node.loop, found.node.why, found.slot) == (None, "pole", "output 0")


@pytest.mark.parametrize("pipeline", ["", "scan-to-loop"])
def test_a_loop_in_a_loop(pipeline: str) -> None:
    m, x = pt.dmatrix("m"), pt.dscalar("x")

    def row(r: Any, y: Any) -> Any:
        return scan(lambda a, z: pt.log(a) + z, sequences=[r], outputs_info=[y], name="inside")[-1]

    graph = graph_of(scan(row, sequences=[m], outputs_info=[x], name="outside"))
    values = np.ones((4, 5))
    values[2, 3] = -1.0
    work = optimized(graph, pipeline)[0] if pipeline else graph
    found = so.first_nan(work, {"m": values, "x": 0.0})
    node = found.node
    assert node is not None
    assert (node.loop, node.step, node.why) == ("outside/inside", 3, "domain")
    assert [(one.loop, one.step) for one in node.outer_steps] == [("outside", 2)]


def test_a_loop_in_an_op_from_graph() -> None:
    v = pt.dvector("v")
    ys = scan(lambda a, y: a + pt.sqrt(y), sequences=[v], outputs_info=[v[0]], name="roots")
    graph = graph_of(OpFromGraph([v], [ys], name="layer")(pt.dvector("u") - 1.0))
    found = so.first_nan(graph, [np.array([2.0, 0.0, -3.0, 2.0, 1.0])])
    node = found.node
    assert node is not None
    assert (node.loop, node.step, node.why) == ("layer/roots", 3, "domain")


def test_entries_of_arrays() -> None:
    m = pt.dmatrix("m")
    graph = graph_of(scan(lambda r: pt.log(r), sequences=[m], name="rows"))
    values = np.ones((3, 7))
    values[1, 5] = -0.25
    found = so.first_nan(graph, [values])
    assert found.node is not None
    (read,) = found.node.inputs
    assert read.value.endswith("; -0.25 at [5]")


def test_memory_that_nobody_wrote_is_no_finding() -> None:
    x, n = pt.dscalar("x"), pt.lscalar("n")
    ys = scan(lambda y: y * 0.5, outputs_info=[x], n_steps=n)
    for _ in range(3):
        np.full(1000, np.nan)
        assert not so.first_nan(graph_of(ys[-1]), {"x": 1.0, "n": 1000}).harmless
