"""The step of each distinct loop as Python source: as the graph has it, and as it is compiled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph, FunctionGraph

from scanopt_cli.analysis.distinct_loops import distinct_loops
from scanopt_cli.analysis.expression_text import inner_names
from scanopt_cli.analysis.inspection import ReportedLoop, reported_loops
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.naming import slot_names
from scanopt_cli.ir.scan_view import scan_op
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.page.page import Section
from scanopt_cli.python_source.to_python import to_python
from scanopt_cli.reports.document import (
    Block,
    Paragraph,
    Preformatted,
    Span,
    Style,
    located,
)
from scanopt_cli.rules.compiled_loops import CompiledLoop, compiled_loops
from scanopt_cli.rules.titled_copies import titles_of
from scanopt_cli.text import plural

MOST_LOOPS = 40
"""Of how many distinct loops the source is shown."""
_GONE = "no loop is left of it once PyTensor has rewritten the graph"
_TOO_LONG = "PyTensor takes too long to rewrite the graph: how it compiles the steps is not known"
_AS_IT_IS = "it is compiled as it is"
_NAMED = re.compile(r'name="([^"]*<[0-9]+>[^"]*)"')


def code_sections(graph: Graph) -> Iterator[Section]:
    """Yield the source of each distinct step, folded; nothing of a graph without loops."""
    with bounded_folding():
        blocks = list(_blocks(graph))
    if blocks:
        yield Section(title="Steps as Python source", blocks=blocks, is_open=False)


def _blocks(graph: Graph) -> Iterator[Block]:
    reported = {each.report.title: each for each in reported_loops(graph.fgraph, each_place=True)}
    loops = distinct_loops([each.report for each in reported.values()])
    if not loops:
        return
    named = [each.loop for each in reported.values() if scan_op(each.loop.view.node) is not None]
    compiled = compiled_loops(graph.fgraph, named)
    if compiled is None:
        yield Paragraph(Span(_TOO_LONG, Style.WARNING))
    for distinct in loops[:MOST_LOOPS]:
        found = reported[distinct.first.title]
        more = len(distinct.copies) - 1
        copies = f", and {plural(more, 'more loop')} like it" if more else ""
        yield Paragraph([*located(found.report.title, found.report.place), copies])
        yield from _step(found)
        if found.loop not in named:
            yield Paragraph(Span(_AS_IT_IS, Style.FAINT))
        elif compiled is not None:
            yield from _compiled(compiled.get(found.report.title, ()), named)
    if len(loops) > MOST_LOOPS:
        rest = plural(len(loops) - MOST_LOOPS, "more distinct loop")
        yield Paragraph(Span(f"… {rest}: `scanopt python` has all", Style.FAINT))


def _step(found: ReportedLoop) -> Iterator[Block]:
    loop = found.loop
    names = [loop.inner_names.get(variable) for variable in loop.view.op.fgraph.inputs]
    yield from _source(loop.view, names, f"a step of {loop.title}")


def _compiled(loops: Sequence[CompiledLoop], named: Sequence[NamedLoop]) -> Iterator[Block]:
    """Yield the steps of what a Scan is, or of what parts of it are, when it is compiled."""
    if not loops:
        yield Paragraph(Span(_GONE, Style.FAINT))
    for each in loops:
        yield Paragraph("as PyTensor's rewrites for Numba leave it to be compiled:")
        names = inner_names(each.view, slot_names(each.view, lambda _: ()))
        inputs = each.view.op.fgraph.inputs
        for block in _source(each.view, list(map(names.get, inputs)), "a step that is compiled"):
            yield _with_own_names(block, named)


def _with_own_names(block: Block, named: Sequence[NamedLoop]) -> Block:
    """Return source in which loops inside have their names, not those that find them again."""
    if not isinstance(block, Preformatted):
        return block

    def own(found: re.Match[str]) -> str:
        titles = " and ".join(titles_of(found[1], named))
        return f"name={json.dumps(titles)}" if titles else found[0]

    return Preformatted([_NAMED.sub(own, str(line)) for line in block.lines])


def _source(view: SlotView, names: Sequence[str | None], title: str) -> Iterator[Block]:
    """Yield a script that computes ``outputs``, what a step makes, from its ``inputs``."""
    body: AbstractFunctionGraph = view.op.fgraph
    if isinstance(body, FrozenFunctionGraph):
        copy = body.unfreeze()
    else:
        assert isinstance(body, FunctionGraph)
        copy = body.clone()
    for variable, name in zip(copy.inputs, names, strict=True):
        variable.name = name or variable.name
    try:
        text = to_python(from_io(copy.inputs, copy.outputs, source=title)).text
    except ScanoptError as error:
        yield Paragraph(Span(str(error), Style.WARNING))
    else:
        yield Preformatted(text.splitlines())
