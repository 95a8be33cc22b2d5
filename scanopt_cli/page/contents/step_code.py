"""The step of each distinct loop as Python source."""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.graph.fg import FrozenFunctionGraph

from scanopt_cli.analysis.distinct_loops import distinct_loops
from scanopt_cli.analysis.inspection import ReportedLoop, reported_loops
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.page.page import Section
from scanopt_cli.python_source.to_python import to_python
from scanopt_cli.reports.document import Block, Paragraph, Preformatted, Span, Style, located
from scanopt_cli.text import plural

MOST_LOOPS = 40
"""Of how many distinct loops the source is shown."""


def code_sections(graph: Graph) -> Iterator[Section]:
    """Yield the source of each distinct step, folded; nothing of a graph without loops."""
    blocks = list(_blocks(graph))
    if blocks:
        yield Section(title="Steps as Python source", blocks=blocks, is_open=False)


def _blocks(graph: Graph) -> Iterator[Block]:
    reported = {each.report.title: each for each in reported_loops(graph.fgraph, each_place=True)}
    loops = distinct_loops([each.report for each in reported.values()])
    for distinct in loops[:MOST_LOOPS]:
        found = reported[distinct.first.title]
        more = len(distinct.copies) - 1
        copies = f", and {plural(more, 'more loop')} like it" if more else ""
        yield Paragraph([*located(found.report.title, found.report.place), copies])
        try:
            lines = _source(found).splitlines()
        except ScanoptError as error:
            yield Paragraph(Span(str(error), Style.WARNING))
        else:
            yield Preformatted(lines)
    if len(loops) > MOST_LOOPS:
        rest = plural(len(loops) - MOST_LOOPS, "more distinct loop")
        yield Paragraph(Span(f"… {rest}: `scanopt python` has all", Style.FAINT))


def _source(found: ReportedLoop) -> str:
    """Return a script that computes ``outputs``, what a step makes, from its ``inputs``."""
    loop = found.loop
    body = loop.view.op.fgraph
    names = [loop.inner_names.get(variable) for variable in body.inputs]
    copy = body.unfreeze() if isinstance(body, FrozenFunctionGraph) else body.clone()
    for variable, name in zip(copy.inputs, names, strict=True):
        variable.name = name or variable.name
    step = from_io(copy.inputs, copy.outputs, source=f"a step of {loop.title}")
    return to_python(step).text
