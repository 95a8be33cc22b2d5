"""Write blocks of text as HTML: for a notebook, a fragment without scripts and style sheets.

For a page, whose content security policy allows no styles in attributes, parts have classes
instead, which the style sheet of the page knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
    "good": "color:#2a9d4a",
    "bad": "color:#e5484d",
    "warning": "color:#b8860b",
    "faint": "opacity:0.7",
    "plain-list": "list-style:none",
    "left": "text-align:left",
    "right": "text-align:right",
    "prose": "white-space:pre-wrap",
}
_NAMES = {
    Style.GOOD: "good",
    Style.BAD: "bad",
    Style.WARNING: "warning",
    Style.FAINT: "faint",
}
_DEEPEST = 8
"""A page indents nothing deeper."""
# What a notebook takes for the start of a formula, which may be a link.
_FORMULA = re.compile(r"[$\\]")
_NOT_A_FORMULA = "scanopt tex2jax_ignore mathjax_ignore"


def render(blocks: Iterable[Block], *, with_classes: bool = False) -> str:
    """Return blocks as one ``div``; the items of a list are in one ``ul``.

    With ``with_classes``, parts have classes in place of styles: ``so-good``.
    """
    inside = "\n".join(_Writer(with_classes).rendered(blocks))
    return f'<div class="{_NOT_A_FORMULA}">\n{inside}\n</div>'


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes blocks; the looks of parts are in styles, or named by classes."""

    with_classes: bool

    def rendered(self, blocks: Iterable[Block]) -> Iterator[str]:
        for is_list, group in groupby(blocks, key=lambda block: isinstance(block, Item)):
            if is_list:
                yield f"<ul{self._look('plain-list')}>"
                yield from (self._item(block) for block in group if isinstance(block, Item))
                yield "</ul>"
            else:
                yield from (text for block in group for text in self._lines(block))

    def _lines(self, block: Block) -> Iterator[str]:
        match block:
            case Heading(title, verdict):
                more = f": {_escaped(verdict)}" if verdict else ""
                yield f"<p><strong>{_escaped(title)}</strong>{more}</p>"
            case Paragraph(text):
                if inside := self._text(text):
                    yield f"<p>{inside}</p>"
            case Item():
                yield self._item(block)
            case Table(otherwise=narrow) if narrow and self.with_classes:
                yield from self.rendered(narrow)  # the column of text beside the picture is narrow
            case Table(columns, rows):
                yield "<table>"
                titles = (_escaped(column.title) for column in columns)
                yield f"<thead>{self._row('th', columns, titles)}</thead>"
                yield "<tbody>"
                yield from (self._row("td", columns, map(self._text, row)) for row in rows)
                yield from ("</tbody>", "</table>")
            case Preformatted(lines):
                yield "<pre>" + "\n".join(map(self._text, lines)) + "</pre>"
            case Tree(text, branches):
                yield f"<p>{self._text(text)}</p>"
                yield from self._branches(branches)
            case Prose(markdown):
                inside = "\n".join(map(_escaped, markdown.split("\n")))
                yield f"<div{self._look('prose')}>{inside}</div>"
            case Nested(blocks, depth):
                yield f"<div{self._indented(depth)}>"
                yield from self.rendered(blocks)
                yield "</div>"

    def _item(self, item: Item) -> str:
        sign = ""
        if item.sign is not None:
            mark = f'<span title="{_quoted(item.sign.word)}">{self._text(item.sign.text)}</span>'
            sign = self._looking(mark, item.sign.style) + " "
        notes = "".join(f"<li>{self._text(note)}</li>" for note in item.notes)
        below = f"<ul{self._look('plain-list')}>{notes}</ul>" if notes else ""
        return f"<li{self._indented(item.depth)}>{sign}{self._text(item.text)}{below}</li>"

    def _row(self, tag: str, columns: Iterable[Column], cells: Iterable[str]) -> str:
        sides = ("right" if column.is_number else "left" for column in columns)
        pairs = zip(sides, cells, strict=True)
        return f"<tr>{''.join(self._cell(tag, side, cell) for side, cell in pairs)}</tr>"

    def _cell(self, tag: str, side: str, cell: str) -> str:
        return f"<{tag}{self._look(side)}>{cell}</{tag}>"

    def _branches(self, branches: Iterable[Tree]) -> Iterator[str]:
        yield "<ul>"
        waiting: list[Tree | str] = ["</ul>", *reversed([*branches])]
        while waiting:
            branch = waiting.pop()
            if isinstance(branch, str):
                yield branch
                continue
            yield f"<li>{self._text(branch.text)}"
            waiting.append("</li>")
            if branch.branches:
                yield "<ul>"
                waiting += ["</ul>", *reversed([*branch.branches])]

    def _text(self, line: Line) -> str:
        return "".join(map(self._marked, spans(line)))

    def _marked(self, span: Span) -> str:
        text, tag = _escaped(span.text), _TAGS.get(span.style)
        return f"<{tag}>{text}</{tag}>" if tag and text else self._looking(text, span.style)

    def _looking(self, text: str, style: Style) -> str:
        name = _NAMES.get(style)
        return f"<span{self._look(name)}>{text}</span>" if name and text else text

    def _look(self, name: str) -> str:
        """Return the attribute that gives a part its look."""
        return f' class="so-{name}"' if self.with_classes else f' style="{_LOOKS[name]}"'

    def _indented(self, depth: int) -> str:
        if self.with_classes:
            return f' class="so-indent-{min(depth, _DEEPEST)}"'
        return f' style="margin-left:{2 * depth}em"'


def _escaped(text: str) -> str:
    """Return ``text`` on one line as HTML; no part of it is taken for a tag or for a formula."""
    return _FORMULA.sub(r"<span>\g<0></span>", escape(printable(text)))


def _quoted(text: str) -> str:
    return escape(printable(text), quote=True)
