"""Write blocks of text as HTML, for a notebook: a fragment without scripts and style sheets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby

from scanopt_cli.reports.document import (
    Block,
    Column,
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
from scanopt_cli.text import printable

_TAGS = {Style.STRONG: "strong", Style.NAME: "code", Style.CODE: "code"}
# Readable on white and on black.
_LOOKS = {
    Style.GOOD: "color:#2a9d4a",
    Style.BAD: "color:#e5484d",
    Style.WARNING: "color:#b8860b",
    Style.FAINT: "opacity:0.7",
}
# What a notebook takes for the start of a formula, which may be a link.
_FORMULA = re.compile(r"[$\\]")
_NOT_A_FORMULA = "scanopt tex2jax_ignore mathjax_ignore"


def render(blocks: Iterable[Block]) -> str:
    """Return blocks as one ``div``; the items of a list are in one ``ul``."""
    return f'<div class="{_NOT_A_FORMULA}">\n' + "\n".join(_rendered(blocks)) + "\n</div>"


def _rendered(blocks: Iterable[Block]) -> Iterator[str]:
    for is_list, group in groupby(blocks, key=lambda block: isinstance(block, Item)):
        if is_list:
            yield '<ul style="list-style:none">'
            yield from (_item(block) for block in group if isinstance(block, Item))
            yield "</ul>"
        else:
            yield from (text for block in group for text in _lines(block))


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Heading(title, verdict):
            more = f": {_escaped(verdict)}" if verdict else ""
            yield f"<p><strong>{_escaped(title)}</strong>{more}</p>"
        case Paragraph(text):
            if inside := _text(text):
                yield f"<p>{inside}</p>"
        case Item():
            yield _item(block)
        case Table(columns, rows):
            yield "<table>"
            titles = (_escaped(column.title) for column in columns)
            yield f"<thead>{_row('th', columns, titles)}</thead>"
            yield "<tbody>"
            yield from (_row("td", columns, map(_text, row)) for row in rows)
            yield from ("</tbody>", "</table>")
        case Preformatted(lines):
            yield "<pre>" + "\n".join(map(_text, lines)) + "</pre>"
        case Tree(text, branches):
            yield f"<p>{_text(text)}</p>"
            yield from _branches(branches)
        case Prose(markdown):
            inside = "\n".join(map(_escaped, markdown.split("\n")))
            yield f'<div style="white-space:pre-wrap">{inside}</div>'
        case Nested(blocks, depth):
            yield f'<div style="margin-left:{2 * depth}em">'
            yield from _rendered(blocks)
            yield "</div>"


def _item(item: Item) -> str:
    sign = ""
    if item.sign is not None:
        mark = f'<span title="{_quoted(item.sign.word)}">{_text(item.sign.text)}</span>'
        sign = _looking(mark, item.sign.style) + " "
    notes = "".join(f"<li>{_text(note)}</li>" for note in item.notes)
    below = f'<ul style="list-style:none">{notes}</ul>' if notes else ""
    return f'<li style="margin-left:{2 * item.depth}em">{sign}{_text(item.text)}{below}</li>'


def _row(tag: str, columns: Iterable[Column], cells: Iterable[str]) -> str:
    sides = ("right" if column.is_number else "left" for column in columns)
    pairs = zip(sides, cells, strict=True)
    return f"<tr>{''.join(_cell(tag, side, cell) for side, cell in pairs)}</tr>"


def _cell(tag: str, side: str, cell: str) -> str:
    return f'<{tag} style="text-align:{side}">{cell}</{tag}>'


def _branches(branches: Iterable[Tree]) -> Iterator[str]:
    yield "<ul>"
    waiting: list[Tree | str] = ["</ul>", *reversed([*branches])]
    while waiting:
        branch = waiting.pop()
        if isinstance(branch, str):
            yield branch
            continue
        yield f"<li>{_text(branch.text)}"
        waiting.append("</li>")
        if branch.branches:
            yield "<ul>"
            waiting += ["</ul>", *reversed([*branch.branches])]


def _text(line: Line) -> str:
    return "".join(map(_marked, spans(line)))


def _marked(span: Span) -> str:
    text, tag = _escaped(span.text), _TAGS.get(span.style)
    return f"<{tag}>{text}</{tag}>" if tag and text else _looking(text, span.style)


def _looking(text: str, style: Style) -> str:
    look = _LOOKS.get(style)
    return f'<span style="{look}">{text}</span>' if look and text else text


def _escaped(text: str) -> str:
    """Return ``text`` on one line as HTML; no part of it is taken for a tag or for a formula."""
    return _FORMULA.sub(r"<span>\g<0></span>", escape(printable(text)))


def _quoted(text: str) -> str:
    return escape(printable(text), quote=True)
