"""Loops to merge, and what must hold of the merged ones."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt

from scanopt_cli.ir.graph import Graph
from scanopt_cli.passes.merge_scans.merge_scans import MergeScans
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.reports.remark_text import text_of
from support.evaluating import assert_same_outcomes
from support.graph_building import outputs_of, scan, scan_views

X = pt.dscalar("x")
N, M = pt.lscalars("n", "m")
S, T = pt.dvectors("s", "t")
VALUES = {
    "x": 1.1,
    "m": 2,
    "s": [0.5, 2.0, 3.0, 1.5, 0.1, 2.0],
    "t": [1.0, -1.0, 0.3, 2.0, 0.7],
    "start": [1.0, 2.0],
    "batch": [0.5, 1.0, 2.0],
    "other": [3.0, 1.0],
    "c": 1,
}


def merged(graph: Graph, *passes: Any, limit: int | None = None) -> tuple[Graph, list[str]]:
    """Run merge-scans, or ``passes``, on a copy; return it and its remarks."""
    work = graph.copy()
    runs = run_pipeline(work.fgraph, passes or [MergeScans()], limit=limit)
    return work, [
        f"{remark.kind} {remark.scan}: {text_of(remark)}" for run in runs for remark in run.remarks
    ]


def names(graph: Graph) -> list[str]:
    return sorted(view.name for view in scan_views(graph.fgraph))


def check(graph: Graph, after: Graph, counts: tuple[int, ...] = (0, 1, 2, 5), **values) -> None:
    """Same values, and errors in the same cases, for few and for many steps."""
    for n in counts:
        given = {**VALUES, "n": n, **values}
        given = {v.name: given[str(v.name)] for v in graph.inputs}
        assert_same_outcomes(outputs_of(graph, **given), outputs_of(after, **given))


def grow(factor: float, start: Any = X, steps: Any = N, name: str = "grow", **settings: Any) -> Any:
    return scan(lambda y: y * factor, outputs_info=[start], n_steps=steps, name=name, **settings)
