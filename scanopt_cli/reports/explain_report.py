"""Topics: the list of them, and one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import dedent

from scanopt_cli.explain.topics import Topic
from scanopt_cli.reports.document import (
    Block,
    Column,
    Heading,
    Item,
    Line,
    Paragraph,
    Preformatted,
    Prose,
    Span,
    Style,
    Table,
)

# In a narrower table the texts would be only a few letters wide.
_TABLE_WIDTH = 60
_INDENT = " " * 4


def topics_report(found: Sequence[Topic]) -> Iterator[Block]:
    """Yield the topics, one on each line, by the parts to which they belong."""
    for part, topics in groupby(found, key=lambda topic: topic.part):
        rows = [(Span(topic.name, Style.STRONG), topic.summary) for topic in topics]
        items = [Item([name], notes=[text]) for name, text in rows]
        columns = (Column(part, wraps=False), Column("what it is"))
        yield Table(columns, rows, least_width=_TABLE_WIDTH, otherwise=[*items, Paragraph()])
    yield Paragraph(
        "`scanopt explain TOPIC` says more; also of a pass, a rule (P001), a remark (buffer-kept)."
    )


def topic_report(topic: Topic, *, as_markdown: bool) -> Iterator[Block]:
    """Yield what a topic is: as it is written, or as paragraphs and pictures for a screen."""
    yield Heading(topic.name)
    if as_markdown:
        yield Prose(topic.text)
        return
    chunks = topic.text.split("\n\n")
    for is_code, group in groupby(chunks, key=lambda chunk: chunk.startswith(_INDENT)):
        if is_code:
            lines = dedent("\n\n".join(group)).rstrip().split("\n")
            yield from (Paragraph(), Preformatted([_line(f"  {line}".rstrip()) for line in lines]))
        else:
            for chunk in group:
                yield from (Paragraph(), Paragraph(_with_code(" ".join(chunk.split()))))


def _line(line: str) -> Line:
    return Span(line, Style.STRONG) if line.startswith("  $ ") else line


def _with_code(text: str) -> list[str | Span]:
    """Return a text whose names and commands, between backquotes, are set off."""
    pieces = text.split("`")
    return [Span(piece, Style.NAME) if i % 2 else piece for i, piece in enumerate(pieces)]
