"""`hoist-states`: states that every step sets to the same value are computed outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import IfElse
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scan.utils import until
from pytensor.tensor.basic import AllocEmpty

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.ir.graph import from_io
from scanopt_cli.ir.slots import SlotKind
from support.graph_building import assert_same_values, graph_of, labels, only_scan, optimized, scan

x, w = pt.dscalars("x", "w")
n = pt.lscalar("n")
m = pt.dmatrix("m")


@pytest.mark.parametrize("read", [lambda ys: ys, lambda ys: ys[3:], lambda ys: ys[-1]])
def test_case_1_alone_in_its_loop(read: Callable[[Any], Any]) -> None:
    """No loop is left; the initial row is."""
    ys = scan(lambda y, w: w + 1, outputs_info=[x], non_sequences=[w], n_steps=5)
    graph = graph_of(read(ys), ys.owner.inputs[0])
    work, remarks = optimized(graph, "hoist-states")
    assert statistics(work.fgraph).scans == 0
    assert remarks == ["passed scan_fn: hoisted the invariant state `x`"]
    assert_same_values(graph, work, x=0.5, w=2.0)


def test_the_loop_that_a_value_is_computed_from_is_not_copied() -> None:
    powers = scan(lambda p: p * x, outputs_info=[x], n_steps=4)
    ys = scan(lambda y, w: w + 1, outputs_info=[x], non_sequences=[powers[-1]], n_steps=5)
    graph = graph_of(ys[-1], powers[-2])
    work, _ = optimized(graph, "hoist-states")
    assert statistics(work.fgraph).scans == 1
    assert_same_values(graph, work, x=0.5)


@pytest.mark.parametrize("taps", [[-1], [-2, -1], [-3, -1]])
@pytest.mark.parametrize("steps", [0, 1, 2, 6])
def test_case_1_read_by_others(taps: list[int], steps: int) -> None:
    """What reads the state reads the initial rows first, then the one value."""
    start = pt.dvector("start") if taps != [-1] else x
    before, other = scan(
        lambda *a: (pt.exp(a[-1]), sum(a[:-1])),
        outputs_info=[{"initial": start, "taps": taps}, x],
        non_sequences=[w],
        n_steps=n,
    )
    graph = graph_of(before, other)
    work, _ = optimized(graph, "hoist-states")
    view = only_scan(work.fgraph)
    sequences = [f"seq[{i}]" for i in range(len(taps))]
    assert labels(view) == [*sequences, "sit_sot[0]", "non_seq[0]"]
    given = {"start": np.arange(-min(taps)) + 2.0} if taps != [-1] else {}
    assert_same_values(graph, work, x=0.5, w=0.1, n=steps, **given)


@pytest.mark.parametrize("steps", [0, 3])
def test_what_may_raise_is_computed_if_there_is_a_step(steps: int) -> None:
    start = pt.dmatrix("start")
    ys = scan(
        lambda y, m: pt.linalg.cholesky(m), outputs_info=[start], non_sequences=[m], n_steps=n
    )
    graph = graph_of(ys)
    work, _ = optimized(graph, "hoist-states")
    assert any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)
    good = 4 * np.eye(3)
    assert_same_values(graph, work, start=np.ones((3, 3)), m=good if steps else -good, n=steps)


def test_what_cannot_raise_needs_no_condition() -> None:
    graph = graph_of(scan(lambda y, w: w + 1, outputs_info=[x], non_sequences=[w], n_steps=n))
    work, _ = optimized(graph, "hoist-states")
    assert not any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)


def test_constants_and_states_set_by_name() -> None:
    first, second = scan(
        lambda a, b, w: (w, pt.constant(2.0, dtype="float64")),
        outputs_info=[x, x],
        non_sequences=[w],
        n_steps=4,
    )
    graph = graph_of(first, second)
    work, _ = optimized(graph, "hoist-states")
    assert statistics(work.fgraph).scans == 0
    assert_same_values(graph, work, x=0.5, w=2.0)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_case_2_a_map_needs_no_loop(steps: int) -> None:
    v = pt.dvector("v")
    rows, norms = scan(
        lambda v, m: (v @ m, (v**2).sum()),
        outputs_info=[None, None],
        non_sequences=[v, m],
        n_steps=n,
    )
    graph = graph_of(rows, norms)
    work, remarks = optimized(graph, "hoist-states")
    assert statistics(work.fgraph).scans == 0
    assert all("hoisted the invariant output" in told for told in remarks)
    assert_same_values(graph, work, v=np.arange(3.0), m=np.ones((3, 2)), n=steps)
    # A product that is not defined raises if there is a step.
    graph = graph_of(rows)
    work, _ = optimized(graph, "hoist-states")
    assert_same_values(graph, work, v=np.arange(3.0), m=np.ones((2, 2)), n=steps)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_case_3_a_state_that_no_step_changes(steps: int) -> None:
    def cost(ys: Any, zs: Any) -> Any:
        return zs.sum() + ys[-1] ** 2

    made = scan(lambda y, z: (y, z * y + 1), outputs_info=[x, w], n_steps=n)
    graph = from_io([x, w, n], [*made, *pytensor.grad(cost(*made), [x, w])])
    work, remarks = optimized(from_io([x, w, n], made), "hoist-states")
    assert labels(only_scan(work.fgraph)) == ["sit_sot[0]", "non_seq[0]"]
    assert remarks == ["passed scan_fn: made a constant of the state `x`, which no step changes"]
    slopes = pytensor.grad(cost(*work.outputs), list(work.inputs[:2]))
    work = from_io(work.inputs, [*work.outputs, *slopes])
    assert_same_values(graph, work, x=0.5, w=2.0, n=steps)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_last_rows_need_no_trace(steps: int) -> None:
    first, second, other = scan(
        lambda a, b, c, w: (a, w + 1, c * 2),
        outputs_info=[x, x, x],
        non_sequences=[w],
        n_steps=n,
    )
    graph = graph_of(*(states.owner.inputs[0][-1] for states in (first, second, other)))
    work, _ = optimized(graph, "hoist-states")
    assert not any(isinstance(v.owner_op, AllocEmpty) for v in ancestors(work.outputs[:2]))
    assert_same_values(graph, work, x=0.5, w=2.0, n=steps)


def test_case_3_is_an_option_that_compile_safe_does_not_take() -> None:
    """Where only a check tells that there was no step, its caller has to have written it."""
    graph = graph_of(scan(lambda y: y, outputs_info=[x], n_steps=n)[-1])
    for passes in ("hoist-states{unchanged=false}", "compile-safe"):
        assert statistics(optimized(graph, passes)[0].fgraph).scans == 1
    assert statistics(optimized(graph, "guard-last-rows,hoist-states")[0].fgraph).scans == 0


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_case_3_several_initial_rows(steps: int) -> None:
    """All steps have the last of them."""
    ys, zs = scan(
        lambda y2, y1, z: (y1, z * y2 + y1),
        outputs_info=[{"initial": pt.dvector("s"), "taps": [-2, -1]}, x],
        n_steps=n,
    )
    graph = graph_of(ys, zs)
    work, _ = optimized(graph, "hoist-states")
    assert labels(only_scan(work.fgraph)) == ["seq[0]", "seq[1]", "sit_sot[0]"]
    assert_same_values(graph, work, x=0.5, s=[1.5, -2.0], n=steps)
    graph = graph_of(ys)
    work, _ = optimized(graph, "hoist-states,remove-unused,hoist-states")
    assert statistics(work.fgraph).scans == 0
    assert_same_values(graph, work, x=0.5, s=[1.5, -2.0], n=steps)


def test_case_2_beside_a_state_and_its_gradient() -> None:
    def outputs() -> list[Any]:
        ys, zs = scan(
            lambda y, w: (y * w, pt.exp(w)), outputs_info=[x, None], non_sequences=[w], n_steps=5
        )
        return [ys, zs, pytensor.grad((ys * zs).sum(), w)]

    graph = graph_of(*outputs())
    work, remarks = optimized(graph, "hoist-states,remove-unused")
    assert "hoisted the invariant output" in remarks[0]
    assert_same_values(graph, work, x=0.5, w=0.3)
    first, second, _ = outputs()
    work, _ = optimized(graph_of(first, second), "hoist-states")
    of_work: Any = [v for v in work.inputs if v.name == "w"]
    slope = pytensor.grad((work.outputs[0] * work.outputs[1]).sum(), of_work)
    assert_same_values(graph_of(outputs()[2]), graph_of(*slope), x=0.5, w=0.3)


def test_case_2_without_conditions_or_not_at_all() -> None:
    rows = scan(lambda v, m: v @ m, non_sequences=[pt.dvector("v"), m], n_steps=n)
    work, _ = optimized(graph_of(rows), "hoist-states{guarded=false}")
    assert statistics(work.fgraph).scans == 0
    assert not any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)
    _, remarks = optimized(graph_of(rows), "hoist-states{outputs=false}")
    assert remarks == []


OUTPUTS_THAT_STAY: dict[str, Callable[[], Any]] = {
    "it reads a sequence": lambda: scan(lambda s: s * 2, sequences=[pt.dvector("s")]),
    "it reads a state": lambda: scan(lambda y: (y * 2, y + 1), outputs_info=[x, None], n_steps=n)[
        1
    ],
    "it is drawn": lambda: scan(
        lambda rng: pt.random.normal(rng=rng),
        non_sequences=[pytensor.shared(np.random.default_rng())],
        n_steps=3,
    ),
}


@pytest.mark.parametrize("name", OUTPUTS_THAT_STAY)
def test_outputs_that_stay(name: str) -> None:
    _, remarks = optimized(graph_of(OUTPUTS_THAT_STAY[name]()), "hoist-states")
    assert remarks == []


def test_outputs_stay_in_while_loops_and_where_they_are_trimmed() -> None:
    ys, zs = scan(
        lambda y, w: ((y * 2, w + 1), until(y > 9)),
        outputs_info=[x, None],
        non_sequences=[w],
        n_steps=20,
    )
    (told,) = optimized(graph_of(ys, zs), "hoist-states")[1]
    assert "keeps the invariant" in told
    assert "may stop early" in told
    ys, zs = scan(
        lambda y, w: (y * 2, w + 1), outputs_info=[x, None], non_sequences=[w], n_steps=20
    )
    graph = graph_of(ys, zs[-1])
    view = only_scan(graph.fgraph)
    (slot,) = view.of_kind(SlotKind.NIT_SOT)
    slot.outer_input = pt.constant(2, dtype="int64")
    graph.fgraph.replace_all(list(view.rebuild().items()))
    (told,) = optimized(graph, "hoist-states")[1]
    assert "not proved to hold every step" in told


NOT: dict[str, Callable[[], Any]] = {
    "it reads a sequence": lambda: scan(
        lambda s, y: s * 2, sequences=[pt.dvector("s")], outputs_info=[x]
    ),
    "it reads a state": lambda: scan(lambda y: y * 2, outputs_info=[x], n_steps=n),
    "it reads another state": lambda: scan(
        lambda y, z: (z + 1, z * 2), outputs_info=[x, x], n_steps=n
    )[0],
    "it is what it was two steps before": lambda: scan(
        lambda y, _: y, outputs_info=[{"initial": pt.dvector("s"), "taps": [-2, -1]}], n_steps=n
    ),
}


@pytest.mark.parametrize("name", NOT)
def test_states_that_are_not_invariant(name: str) -> None:
    graph = graph_of(NOT[name]())
    _, remarks = optimized(graph, "hoist-states")
    assert remarks == []


def test_must_not_fire_in_while_loops() -> None:
    ys, zs = scan(
        lambda y, z, w: ((w + 1, z * 2), until(z > 9)),
        outputs_info=[x, x],
        non_sequences=[w],
        n_steps=20,
    )
    _, remarks = optimized(graph_of(ys, zs), "hoist-states")
    (told,) = remarks
    assert "may stop early" in told


def test_must_not_fire_in_batches() -> None:
    ys, zs = scan(lambda y, z, w: (w + 1, z * 2), outputs_info=[x, x], non_sequences=[w], n_steps=3)
    batched = vectorize_graph([ys, zs], {x: pt.dvector("xs")})
    _, remarks = optimized(graph_of(*batched), "hoist-states")
    assert ["the loop is batched" in told for told in remarks] == [True]


def test_must_not_fire_on_trimmed_buffers() -> None:
    ys, zs = scan(
        lambda y, z, w: (w + 1, z * y), outputs_info=[x, x], non_sequences=[w], n_steps=30
    )
    graph = graph_of(ys[-1], zs[-1])
    view = only_scan(graph.fgraph)
    slot = view.slots[0]
    slot.outer_input = slot.outer_input[:2]
    graph.fgraph.replace_all(list(view.rebuild().items()))
    _, remarks = optimized(graph, "hoist-states")
    assert ["not proved to hold every step" in told for told in remarks] == [True]
