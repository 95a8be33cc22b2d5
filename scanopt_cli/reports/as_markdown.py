"""Write blocks of text as Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from scanopt_cli.reports.document import (
    Block,
    Heading,
    Item,
    Line,
    Nested,
    Paragraph,
    Preformatted,
    Prose,
    Span,
    Style,
    Table,
    Tree,
    spans,
)
from scanopt_cli.text import markdown, printable

_MARKS = {Style.STRONG: "**", Style.NAME: "**", Style.CODE: "`"}
# What begins a list, or a heading with the line above.
_START = re.compile(r"^(\d*)([.)+=-])")


def render(blocks: Iterable[Block]) -> str:
    """Return blocks with an empty line between two, except between the items of a list."""
    texts: list[str] = []
    follows_item = False
    for block in _flat(blocks):
        text = "\n".join(_lines(block))
        if not text:
            continue
        is_item = isinstance(block, Item)
        if texts:
            texts.append("\n" if is_item and follows_item else "\n\n")
        texts.append(text)
        follows_item = is_item
    return "".join(texts)


def _flat(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        if isinstance(block, Nested):
            yield from _flat(block.blocks)
        else:
            yield block


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Heading(title, verdict):
            yield f"### {markdown(title)}"
            if verdict:
                yield from ("", markdown(verdict))
        case Paragraph(text):
            yield _START.sub(r"\1\\\2", _text(text).lstrip())
        case Item(text, sign, notes, depth):
            kind = "" if sign is None else f"`{sign.text}` {sign.word} "
            yield f"{'  ' * depth}- {kind}{_text(text)}"
            yield from (f"{'  ' * (depth + 1)}- {_text(note)}" for note in notes)
        case Table(columns, rows):
            yield _row(column.title for column in columns)
            yield "|" + "|".join("---:" if column.is_number else "---" for column in columns) + "|"
            yield from (_row(row) for row in rows)
        case Preformatted(lines):
            texts = [printable("".join(span.text for span in spans(line))) for line in lines]
            # No name holds as long a fence; an indented block would go on with a list before it.
            runs = re.findall("`+", "\n".join(texts))
            fence = "`" * max([3, *(len(run) + 1 for run in runs)])
            yield from (fence, *texts, fence)
        case Tree(text, branches):
            yield from (_text(text), "")
            yield from _branches(branches)
        case Prose(text):
            yield text


def _branches(branches: Iterable[Tree]) -> Iterator[str]:
    waiting = [(branch, 0) for branch in reversed([*branches])]
    while waiting:
        branch, depth = waiting.pop()
        yield f"{'  ' * depth}- {_text(branch.text)}"
        waiting += [(inner, depth + 1) for inner in reversed(branch.branches)]


def _row(cells: Iterable[Line]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(line: Line) -> str:
    return "".join(map(_marked, spans(line)))


def _marked(span: Span) -> str:
    text, mark = span.text, _MARKS.get(span.style, "")
    if span.style is Style.CODE:
        # Nothing in it needs an escape, which would be shown.
        return f"{mark}{printable(text)}{mark}"
    inside = markdown(text.strip())
    if not mark or not inside:
        return markdown(text)
    # Marks do not count beside blanks.
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{markdown(before)}{mark}{inside}{mark}{markdown(after)}"
