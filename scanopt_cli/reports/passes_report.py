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
        yield _table("pass", "what it does", {_usage(one): one.summary for one in manuals})
        presets = {name: pipeline.replace(",", ", ") for name, pipeline in PRESETS.items()}
        yield _table("preset", "stands for", presets)
        yield Paragraph("`scanopt passes NAME` prints a pass's manual.")


def _table(title: str, meaning: str, rows: dict[str, str]) -> Table:
    cells = [(Span(name, Style.STRONG), text or "nothing") for name, text in rows.items()]
    items = [Item(name, notes=[text]) for name, text in cells]
    columns = (Column(title, wraps=False), Column(meaning))
    return Table(columns, cells, least_width=_TABLE_WIDTH, otherwise=[*items, Paragraph()])


def _usage(manual: Manual) -> str:
    """Return the pass as a pipeline names it, with the defaults of its options."""
    options = ",".join(f"{option.name}={option.default}" for option in manual.options)
    return f"{manual.name}{{{options}}}" if options else manual.name
