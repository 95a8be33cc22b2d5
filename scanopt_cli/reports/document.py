"""What a command reports, as blocks of text: `as_rich` and `as_markdown` print them.

Texts are as they come, names from files among them; whoever prints them escapes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto


class Style(Enum):
    """What a piece of text is."""

    PLAIN = auto()
    STRONG = auto()
    NAME = auto()
    GOOD = auto()
    BAD = auto()
    WARNING = auto()
    FAINT = auto()


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text in one style."""

    text: str
    style: Style = Style.PLAIN


type Line = str | Span | Sequence[str | Span]


def spans(line: Line) -> list[Span]:
    """Return the pieces of a line."""
    pieces = [line] if isinstance(line, str | Span) else line
    return [Span(piece) if isinstance(piece, str) else piece for piece in pieces]


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a report, on one line however long it is, and what the report says in short."""

    title: str
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text; without one, an empty line where paragraphs are not apart anyway."""

    text: Line = ""


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a list, at a depth: a sign that says its kind, a text, and notes below it.

    If it does not wrap, it stays on one line however long it is.
    """

    text: Line
    sign: Span | None = None
    notes: Sequence[Line] = ()
    depth: int = 0
    wraps: bool = True


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    is_number: bool = False
    wraps: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; where less than ``least_width`` columns of letters are free, ``otherwise``.

    The columns of a dense table are near to each other.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Line]]
    least_width: int = 0
    otherwise: Sequence[Item] = ()
    is_dense: bool = False


@dataclass(frozen=True, slots=True)
class Preformatted:
    """Lines whose blanks count; lines that are too long are cut where there is a width."""

    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Tree:
    """A text with trees below it."""

    text: Line
    branches: Sequence[Tree] = ()


@dataclass(frozen=True, slots=True)
class Prose:
    """Markdown that scanopt's authors wrote."""

    markdown: str


@dataclass(frozen=True, slots=True)
class Nested:
    """Blocks about what is inside of something else, at a depth."""

    blocks: Sequence[Block]
    depth: int


type Block = Heading | Paragraph | Item | Table | Preformatted | Tree | Prose | Nested
