"""What a graph is made of, in short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytensor.graph.basic import Variable

from scanopt_cli.ir.graph import Graph
from scanopt_cli.reports.document import Block, Column, Heading, Item, Span, Style, Table
from scanopt_cli.reports.result_lines import contents

_COLUMNS = (Column("", wraps=False), Column("name"), Column("type"))
_MOST = 12


def graph_report(graph: Graph, *, most: int = _MOST) -> Iterator[Block]:
    """Yield how much a graph has, its inputs and outputs, and what is said of it.

    Of more than ``most`` inputs, or outputs, the rest is counted.
    """
    yield Heading(graph.source, contents(graph))
    names = (*graph.output_names, *[None] * len(graph.outputs))
    outputs = [name or v.name for name, v in zip(names, graph.outputs, strict=False)]
    rows = [
        *_rows("input", graph.inputs, [v.name for v in graph.inputs], most),
        *_rows("shared", graph.shared, [v.name for v in graph.shared], most),
        *_rows("output", graph.outputs, outputs, most),
    ]
    yield Table(_COLUMNS, rows)
    yield from (Item(f"note: {note}") for note in graph.notes)


def _rows(
    kind: str, variables: Sequence[Variable], names: Sequence[str | None], most: int
) -> Iterator[tuple[str, Span, str]]:
    for variable, name in list(zip(variables, names, strict=True))[:most]:
        yield kind, Span(str(name or ""), Style.NAME), str(variable.type)
    if len(variables) > most:
        yield kind, Span(f"… {len(variables) - most} more", Style.FAINT), ""
