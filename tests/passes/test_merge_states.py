"""`merge-states`: each case it merges, and each it must leave alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scalar import basic as ps
from pytensor.scan.utils import until
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import (
    arguments,
    graph_of,
    labels,
    only_scan,
    optimized,
    scan,
    scan_views,
)


def _merged(graph: Graph, **values: Any) -> tuple[list[str], list[str]]:
    """Run the pass, compare values, and return the slots that are left and the remarks."""
    work, remarks = optimized(graph, "merge-states")
    data = arguments(graph, **values)
    assert_same_outcomes(
        evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
    )
    return labels(only_scan(work.fgraph)), remarks


def test_case_1_states_that_start_and_go_on_equal() -> None:
    """PyTensor issue 787."""
    x0 = pt.dscalar("x0")
    xs, ys = scan(lambda x, y: [x * 2 + 1, 1 + y * 2], outputs_info=[x0, x0], n_steps=5)
    left, remarks = _merged(graph_of(xs[-1], ys), x0=3.0)
    assert left == ["sit_sot[0]"]
    assert [remark.partition(": ")[2] for remark in remarks] == [
        "merged sit_sot `x0#2` into `x0#1`"
    ]


def test_case_1_states_that_feed_each_other() -> None:
    x0 = pt.dscalar("x0")
    xs, ys = scan(lambda x, y: [y * 2, x * 2], outputs_info=[x0, x0], n_steps=5)
    assert _merged(graph_of(xs, ys), x0=3.0)[0] == ["sit_sot[0]"]


def test_case_1_states_with_several_taps() -> None:
    start = pt.dvector("start")
    taps = {"initial": start, "taps": [-2, -1]}
    xs, ys = scan(lambda a, b, c, d: [a + b, d + c], outputs_info=[taps, taps], n_steps=4)
    assert _merged(graph_of(xs, ys), start=[1.0, 2.0])[0] == ["mit_sot[0]"]
    xs, ys = scan(lambda a, b, c, d: [a - b, d - c], outputs_info=[taps, taps], n_steps=4)
    assert _merged(graph_of(xs, ys), start=[1.0, 2.0])[0] == ["mit_sot[0]", "mit_sot[1]"]


def test_case_1_states_of_a_gradient() -> None:
    x0 = pt.dscalar("x0")
    xs, ys = scan(lambda x, y: [x**2, y**2], outputs_info=[x0, x0], n_steps=3)
    graph = graph_of(pt.grad(xs[-1] + ys[-1], x0))
    work, _ = optimized(graph, "merge-equal,merge-duplicates,merge-states")
    kinds = [slot.kind for view in scan_views(work.fgraph) for slot in view.slots]
    assert kinds.count(SlotKind.SIT_SOT) == kinds.count(SlotKind.MIT_MOT) == 1
    data = arguments(graph, x0=0.9)
    assert_same_outcomes(
        evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
    )


def test_case_2_outputs_that_compute_the_same() -> None:
    s = pt.dvector("s")
    ys, zs = scan(lambda a: [pt.exp(a + 1), pt.exp(1 + a)], sequences=[s])
    assert _merged(graph_of(ys, zs), s=[1.0, 2.0])[0] == ["seq[0]", "nit_sot[0]"]


def test_case_3_the_trace_of_a_state() -> None:
    x0 = pt.dscalar("x0")
    n = pt.lscalar("n")
    xs, ys = scan(lambda x: [x * 2, x * 2], outputs_info=[x0, None], n_steps=n)
    graph = graph_of(xs[-1], ys)
    for steps in (1, 2, 5):
        assert _merged(graph, x0=3.0, n=steps)[0] == ["sit_sot[0]"]
    work, _ = optimized(graph_of(ys), "merge-states")
    assert evaluate(work.inputs, work.outputs, arguments(work, x0=3.0, n=0))[0].shape == (0,)


def test_case_3_in_a_while_loop() -> None:
    x0 = pt.dscalar("x0")
    xs, ys = scan(lambda x: ([x * 2, x * 2], until(x > 10)), outputs_info=[x0, None], n_steps=20)
    assert _merged(graph_of(xs, ys), x0=1.0)[0] == ["sit_sot[0]"]


def test_equal_outputs_that_are_all_the_trace_of_a_state() -> None:
    x0 = pt.dscalar("x0")
    outputs = scan(lambda x: [x * 2] * 3, outputs_info=[x0, None, None], n_steps=4)
    assert _merged(graph_of(*outputs), x0=3.0)[0] == ["sit_sot[0]"]


def test_leftovers_of_several_kinds_come_away_together() -> None:
    x0, s = pt.dscalar("x0"), pt.dvector("s")
    outputs = scan(
        lambda a, x, y: [x + a, a + y, pt.exp(x), pt.exp(y), x + a],
        sequences=[s],
        outputs_info=[x0, x0, None, None, None],
    )
    left, _ = _merged(graph_of(*outputs), s=[1.0, 2.0, 3.0], x0=0.5)
    assert left == ["seq[0]", "sit_sot[0]", "nit_sot[0]"]


TWINS: dict[str, Any] = {
    "start": lambda x0, y0: scan(lambda x, y: [x * 2, y * 2], outputs_info=[x0, y0], n_steps=5),
    "update": lambda x0, y0: scan(lambda x, y: [x * 2, y * 3], outputs_info=[x0, x0], n_steps=5),
    "order of a difference": lambda x0, y0: scan(
        lambda x, y: [x - y0, y0 - y], outputs_info=[x0, x0], n_steps=5
    ),
    "one step later": lambda x0, y0: scan(
        lambda x, y, z: [x * y0, x * 1.0, y * 1.0], outputs_info=[x0, x0, x0], n_steps=5
    ),
    "dtype": lambda x0, y0: scan(
        lambda x, y: [x * 2, (y * np.float32(2)).astype("float32")],
        outputs_info=[x0, x0.astype("float32")],
        n_steps=5,
    ),
    "a trace of another state": lambda x0, y0: scan(
        lambda x, y: [x * 2, y * 3, x], outputs_info=[x0, y0, None], n_steps=5
    ),
}


@pytest.mark.parametrize("case", TWINS)
def test_what_differs_is_left_alone(case: str) -> None:
    x0, y0 = pt.dscalars("x0", "y0")
    graph = graph_of(*TWINS[case](x0, y0))
    values = {"x0": 1.5, "y0": -2.0}
    left, _ = _merged(graph, **{v.name: values[v.name] for v in graph.inputs})
    assert left == labels(only_scan(graph.fgraph))


def test_trimmed_buffer_is_no_trace() -> None:
    x0 = pt.dscalar("x0")
    xs, ys = scan(lambda x: [x * 2, x * 2], outputs_info=[x0, None], n_steps=5)
    graph = graph_of(xs[-1], ys)
    trimmed, _ = optimized(graph, "save-mem")
    left, remarks = _merged(trimmed, x0=3.0)
    assert left == ["sit_sot[0]", "nit_sot[0]"]
    assert any("not proved to hold every step" in remark for remark in remarks)


def test_case_3_the_trace_of_a_vector() -> None:
    x0 = pt.dvector("x0")
    xs, ys = scan(lambda x: [x * 2, x * 2], outputs_info=[x0, None], n_steps=3)
    assert _merged(graph_of(xs[-1], ys), x0=[1.0, 2.0])[0] == ["sit_sot[0]"]


def test_trace_of_vectors_needs_a_step() -> None:
    x0, n = pt.dvector("x0"), pt.lscalar("n")
    xs, ys = scan(lambda x: [x * 2, x * 2], outputs_info=[x0, None], n_steps=n)
    left, remarks = _merged(graph_of(xs[-1], ys), x0=[1.0, 2.0], n=3)
    assert left == ["sit_sot[0]", "nit_sot[0]"]
    assert any("loses the shape of a trace of no steps" in remark for remark in remarks)


def test_random_states_that_are_one_generator() -> None:
    """Both states start as one generator, so both draw the same numbers."""
    rng = pytensor.shared(np.random.default_rng(1), name="rng")

    def step(r, q):
        next_r, a = pt.random.normal(rng=r).owner.outputs
        next_q, b = pt.random.normal(rng=q).owner.outputs
        return [next_r, next_q, a, b]

    outputs = pytensor.scan(
        step, outputs_info=[rng, rng, None, None], n_steps=3, return_updates=False
    )
    graph = graph_of(*outputs[2:])
    work, _ = optimized(graph, "merge-states")
    assert labels(only_scan(work.fgraph)) == ["untraced[0]", "nit_sot[0]"]


def test_step_that_works_in_place_is_left_alone() -> None:
    x = pt.dvector("x")
    exp_inplace = Elemwise(ps.Exp(ps.same_out), {0: 0})
    sin_inplace = Elemwise(ps.Sin(ps.same_out), {0: 0})
    outputs = scan(
        lambda a, b: [a * 2, b * 2, exp_inplace(a * 3), sin_inplace(b * 3)],
        outputs_info=[x, x, None, None],
        n_steps=3,
    )
    left, remarks = _merged(graph_of(*outputs), x=[0.1, 0.2])
    assert left == ["sit_sot[0]", "sit_sot[1]", "nit_sot[0]", "nit_sot[1]"]
    assert remarks == ["missed scan_fn: a step works in place"]


def test_limit_counts_loops() -> None:
    x0 = pt.dscalar("x0")
    outputs = [
        scan(lambda x, y, k: [x * k, y * k], outputs_info=[x0] * 2, non_sequences=[k], n_steps=3)[1]
        for k in (x0, x0 + 1)
    ]
    work = graph_of(*outputs)
    (run,) = run_pipeline(work.fgraph, parse("merge-states"), limit=1)
    assert run.rewrites == 1
    assert sum(len(labels(view)) for view in scan_views(work.fgraph)) == 2 + 3
