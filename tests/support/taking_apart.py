"""Loops with mit_mots taken apart, and compared with what they were."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.mit_mot_to_sit_sot import MitMotToSitSot
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.reports.remark_text import text_of
from support.evaluating import assert_same_outcomes, evaluator
from support.graph_building import arguments, scan, scan_views
from support.mit_mot_loops import MitMotLoop, N

VALUES = {"x": 0.9, "start": [0.9, 0.4], "batch": [0.9, -0.4, 0.1], "g": 0.7}


def taken_apart(graph: Graph) -> tuple[Graph, list[str]]:
    work = graph.copy()
    (run,) = run_pipeline(work.fgraph, [MitMotToSitSot()])
    return work, [f"{remark.kind} {text_of(remark)}" for remark in run.remarks]


def check(graph: Graph, **values: Any) -> tuple[Graph, list[str]]:
    """Take apart, and compare the values (and the errors) for few and for many steps."""
    after, remarks = taken_apart(graph)
    old, new = evaluator(graph.inputs, graph.outputs), evaluator(after.inputs, after.outputs)
    for n in (0, 1, 2, 3, 7):
        given = arguments(graph, **{**VALUES, **values, "n": n})
        assert_same_outcomes(old(given), new(given))
    return after, remarks


def view_of(graph: Graph, name: str) -> ScanView:
    (view,) = (view for view in scan_views(graph.fgraph) if view.name == name)
    return view


COSTS: dict[str, Callable[[Any], Any]] = {
    "last": lambda xs: xs[-1].sum(),
    "sum": lambda xs: xs.sum(),
    "squares": lambda xs: (xs**2).sum(),
    "every other": lambda xs: xs[::2].sum(),
    "first": lambda xs: xs[0].sum(),
    "two": lambda xs: xs[-1].sum() * xs[1].sum(),
    "last and sum": lambda xs: xs[-1].sum() + xs.sum(),
    "backwards": lambda xs: xs[::-1][:2].sum(),
    "at n": lambda xs: xs[N - 1].sum(),
}

STEPS = pytest.mark.parametrize("steps", [N, 5], ids=["n", "5"])


def vector_power(steps: Any) -> tuple[Variable, Any]:
    start = pt.dvector("start")
    return start, scan(lambda y: y**2 * 0.9, outputs_info=[start], n_steps=steps, name="square")


def ar2(steps: Any) -> tuple[Variable, Any]:
    start = pt.dvector("start")
    ys = scan(
        lambda a, b: pt.tanh(0.5 * a + 0.3 * b),
        outputs_info=[{"initial": start, "taps": [-2, -1]}],
        n_steps=steps,
        name="square",
    )
    return start, ys


def loop_of(**changes: Any) -> MitMotLoop:
    plain = MitMotLoop(
        taps=(0, 1),
        out_taps=(1,),
        buffer="given",
        readers=("whole",),
        steps=None,
        extra=0,
        is_vector=False,
        is_static=False,
        adds=True,
    )
    return dataclasses.replace(plain, **changes)


def check_loop(loop: MitMotLoop) -> tuple[Graph, list[str]]:
    graph = from_io(*loop.built())
    after, remarks = taken_apart(graph)
    after.fgraph.check_integrity()
    old = evaluator(graph.inputs, graph.outputs)
    new = evaluator(after.inputs, after.outputs)
    for n in (0, 1, 2, 3, 5):
        assert_same_outcomes(old(loop.arguments(n)), new(loop.arguments(n)))
    return after, remarks
