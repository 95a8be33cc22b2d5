"""Passes and their manuals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.pipeline.manual import Manual
from scanopt_cli.reports.document import (
    Block,
    Column,
    Heading,
    Item,
    Paragraph,
    Prose,
    Span,
    Style,
    Table,
)

# In a narrower table the texts would be only a few letters wide.
_TABLE_WIDTH = 70


def passes_report(manuals: Sequence[Manual], *, whole: bool = False) -> Iterator[Block]:
    """Yield the passes, one on each line, and what the presets stand for.

    With ``whole``, the whole manual of each pass instead.
    """
    if not manuals:
        yield Paragraph("no passes are selected")
    elif whole:
        for manual in manuals:
            yield from (Heading(_usage(manual)), Paragraph(), Prose(manual.text))
    else:
        passes = [(one.name, one.summary, " ".join(_options(one))) for one in manuals]
        yield _table("pass", "what it does", "options", rows=passes)
        presets = [(name, text.replace(",", ", ") or "nothing") for name, text in PRESETS.items()]
        yield _table("preset", "stands for", rows=presets)
        yield Paragraph("`scanopt passes NAME` prints a pass's manual.")


def _table(*titles: str, rows: Sequence[tuple[str, ...]]) -> Table:
    cells: list[list[str | Span]] = [[Span(name, Style.STRONG), *rest] for name, *rest in rows]
    items = [Item(name, notes=[text for text in rest if text]) for name, *rest in cells]
    first, *others = titles
    columns = (Column(first, wraps=False), *map(Column, others))
    return Table(columns, cells, least_width=_TABLE_WIDTH, otherwise=[*items, Paragraph()])


def _options(manual: Manual) -> list[str]:
    """Return the options of a pass with their defaults, as a pipeline has them in braces."""
    return [f"{option.name}={option.default}" for option in manual.options]


def _usage(manual: Manual) -> str:
    """Return the pass as a pipeline names it, with the defaults of its options."""
    options = ",".join(_options(manual))
    return f"{manual.name}{{{options}}}" if options else manual.name
