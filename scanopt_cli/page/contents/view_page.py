"""What the page of `inspect` and `view` says: the loops and slots of a graph, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scanopt_cli.analysis.inspection import Inspection, inspect_graph
from scanopt_cli.ir.graph import Graph
from scanopt_cli.page.contents.loop_sections import loop_sections
from scanopt_cli.page.contents.parts import Part
from scanopt_cli.page.contents.slot_values import with_values
from scanopt_cli.page.contents.stages import picture_of
from scanopt_cli.page.page import Drawn, Section, Tone
from scanopt_cli.reports.document import Paragraph
from scanopt_cli.reports.graph_report import graph_report
from scanopt_cli.reports.result_lines import contents
from scanopt_cli.reports.trace_report import trace_report
from scanopt_cli.tracing.result import Trace

_MOST_ENDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewed:
    """A graph, what `inspect` chose of it, values of its loops, and further sections."""

    graph: Graph
    inspection: Inspection | None = None
    trace: Trace | None = None
    more: Sequence[Section] = ()


def view_part(viewed: Viewed) -> Part:
    """Return what a page says of a graph."""
    graph, trace = viewed.graph, viewed.trace
    picture = picture_of(graph)
    if trace is not None:
        picture = with_values(picture, trace)
    return Part(
        source=graph.source,
        verdict=contents(graph),
        tone=Tone.NEUTRAL,
        sections=(*_sections(viewed), *viewed.more),
        drawn=(Drawn(title=graph.source, picture=picture),),
    )


def _sections(viewed: Viewed) -> Iterator[Section]:
    graph = viewed.graph
    yield from loop_sections(viewed.inspection or inspect_graph(graph.fgraph))
    yield from value_sections(viewed.trace)
    blocks = list(graph_report(graph, most=_MOST_ENDS))[1:]  # the verdict is that of the page
    yield Section(title="Inputs and outputs", blocks=blocks, is_open=False)


def value_sections(trace: Trace | None) -> Iterator[Section]:
    """Yield the values of the slots of loops, if they were traced."""
    if trace is None:
        return
    blocks = list(trace_report(trace)) if trace.loops else [Paragraph("no loop in this graph")]
    yield Section(title="Values at each step", blocks=blocks, is_open=False)
