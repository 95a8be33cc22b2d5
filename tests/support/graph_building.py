"""Small graphs that many tests look at, and ways to look at them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.scan.basic import scan as pytensor_scan
from pytensor.scan.op import ScanInfo

from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.reports.remark_text import text_of
from support.evaluating import assert_same_outcomes, evaluate

_NO_SLOTS = ScanInfo(0, (), (), (), (), 0, 0, 0, as_while=False)


def scan_views(fgraph: AbstractFunctionGraph) -> Iterator[ScanView]:
    """Yield a view of each Scan of ``fgraph`` itself, in topological order."""
    for node in fgraph.toposort():
        if scan_op(node) is not None:
            yield ScanView.of(node)


def scan(step: Any, **arguments: Any) -> Any:
    """`pytensor.scan` as it is called today."""
    return pytensor_scan(step, return_updates=False, **arguments)


def scan_info(**slots: Any) -> ScanInfo:
    """Return the counts and taps of a loop that has no slots but those that are given."""
    return replace(_NO_SLOTS, **slots)


def graph_of(*outputs: Variable) -> Graph:
    """Make a graph of everything that ``outputs`` need."""
    return from_io(None, list(outputs))


def optimized(graph: Graph, pipeline: str) -> tuple[Graph, list[str]]:
    """Run a pipeline on a copy; return it and its remarks as ``kind scan: message``."""
    work = graph.copy()
    runs = run_pipeline(work.fgraph, parse(pipeline))
    return work, [
        f"{remark.kind} {remark.scan}: {text_of(remark)}" for run in runs for remark in run.remarks
    ]


def rid_of(kind: type[Op], graph: Graph, pipeline: str) -> Graph:
    """Run a pipeline on a copy, after which no Op of a kind is left at any depth."""
    work, _ = optimized(graph, pipeline)
    assert not any(isinstance(node.op, kind) for node in walk(work.fgraph))
    return work


def only_scan(fgraph: AbstractFunctionGraph) -> ScanView:
    """View the one Scan of a graph."""
    (view,) = scan_views(fgraph)
    return view


def labels(view: ScanView) -> list[str]:
    """List the slots of a Scan as ``kind[position]``."""
    return [slot.label for slot in view.slots]


def power(steps: Any = 4, name: str = "square") -> tuple[Variable, Any]:
    """Square a scalar again and again: the input and every step."""
    x = pt.dscalar("x")
    return x, scan(lambda y: y**2, outputs_info=[x], n_steps=steps, name=name)


def wasteful(name: str) -> Any:
    """The last power of two times ``x``, by a loop that computes another trace for nobody."""
    x, n = pt.dscalar("x"), pt.lscalar("n")
    ys, _ = scan(lambda y: [y * 2, y + 1], outputs_info=[x, None], n_steps=n, name=name)
    return ys[-1]


def arguments(graph: Graph, **values: Any) -> list[Any]:
    """Return ``values`` by input name, in the graph's order, as the arrays that inputs hold."""
    return [
        variable.type.filter(values[str(variable.name)], allow_downcast=True)
        for variable in graph.inputs
    ]


def outputs_of(graph: Graph, **values: Any) -> list[Any]:
    """Evaluate a graph on ``values`` by input name; an error is an outcome like any other."""
    return evaluate(graph.inputs, graph.outputs, arguments(graph, **values))


def assert_same_values(graph: Graph, work: Graph, **values: Any) -> None:
    """Check that two graphs give the same on ``values`` by input name; errors are outcomes too."""
    data = arguments(graph, **values)
    assert_same_outcomes(
        evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
    )


def gradient_with_mit_mots(x: Any, taps: list[int], order: int) -> Any:
    """Differentiate a loop of one state by ``x``: its mit_mots have taps ahead and behind."""
    initial = x if taps == [-1] else pt.stack([x, x * 2, x * 3])
    ys = scan(
        lambda *rows: pt.sin(rows[0]) * rows[-1] + 0.3,
        outputs_info=[{"initial": initial, "taps": taps}],
        n_steps=6,
    )
    cost = (ys**2).sum()
    for _ in range(order):
        cost = pytensor.grad(cost, x)
    return cost
