"""Pages of graphs, for tests of what is on them."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.scan.basic import scan

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.page.drawing import Drawing
from scanopt_cli.page.page import Drawn, Page, Section, Tone
from scanopt_cli.page.picture import Picture
from scanopt_cli.reports.document import Block, Paragraph

HOSTILE = '<img src=x onerror="window.hacked=1">&\'"`${1}{{7*7}}</script><script>window.hacked=1//'


def walk(name: str = "h") -> Graph:
    """Return a graph with a loop that adds up the entries of a vector."""
    x, start = pt.vector("x"), pt.scalar(name)
    trace = scan(
        lambda x_t, h: pt.tanh(h * 0.5 + x_t),
        sequences=[x],
        outputs_info=[start],
        return_updates=False,
        name=f"walk {name}" if name != "h" else "walk",
    )
    return as_graph(([x, start], [trace[-1]]))


def gradient() -> Graph:
    """Return a graph with a loop and its pullback."""
    x, start = pt.vector("x"), pt.scalar("h")
    trace = scan(
        lambda x_t, h: pt.tanh(h * 0.5 + x_t),
        sequences=[x],
        outputs_info=[start],
        return_updates=False,
        name="walk",
    )
    return as_graph(([x, start], [pt.grad(trace[-1], start)]))


def many_nodes(count: int) -> Graph:
    """Return a graph of so many additions and products, each of two near it."""
    values: list[Any] = [pt.vector("x"), pt.vector("y")]
    inputs = list(values)
    for place in range(count):
        near, far = values[-1], values[max(0, len(values) - 2 - place % 20)]
        values.append(near + far if place % 3 else near * far)
    return as_graph((inputs, [values[-1]]))


def many_loops(count: int) -> Graph:
    """Return a graph of so many loops, some of which read the result of the one before."""
    x, start = pt.vector("x"), pt.scalar("h")
    results: list[Any] = [start]
    for place in range(count):
        trace = scan(
            lambda x_t, h, k=place: pt.tanh(h * x_t) + k % 7,
            sequences=[x],
            outputs_info=[results[-1] if place % 5 else start],
            return_updates=False,
            name="loop",
        )
        results.append(trace[-1])
    return as_graph(([x, start], [sum(results)]))


def picture(*graphs: Graph) -> Picture:
    """Return the picture of stages."""
    drawing = Drawing()
    for place, graph in enumerate(graphs):
        drawing.add(f"stage {place}", graph.fgraph)
    return drawing.picture()


def passes_of(graph: Graph, pipeline: str) -> Picture:
    """Return the picture of a graph and of what each pass that changes it makes of it."""
    drawing = Drawing()
    drawing.add("given", graph.fgraph)
    so.optimize(
        graph,
        pipeline,
        watch=lambda snapshot: drawing.add(
            snapshot.pass_name, snapshot.graph.fgraph, [("passed", "walk", "something")]
        ),
    )
    return drawing.picture()


def page(*drawn: Picture, side_by_side: bool = False, title: str = "walk.pkl") -> Page:
    """Return a page with pictures."""
    blocks: list[Block] = [Paragraph(f"about {title}")]
    return Page(
        command=f"scanopt view {title}",
        title=title,
        verdict="nothing is wrong",
        tone=Tone.GOOD,
        sections=[Section(title="Summary", blocks=blocks)],
        drawn=[
            Drawn(title=f"{title} {place}", picture=one, side_by_side=side_by_side)
            for place, one in enumerate(drawn)
        ],
    )
