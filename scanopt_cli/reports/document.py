"""What a command reports, as blocks of text: `as_rich`, `as_markdown` and `as_html` render them.

Texts may hold any name from a file: the renderers escape them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import ceil

from scanopt_cli.text import at_place, plural

# What a terminal of 80 columns has for text beside a sign and its indentation.
_COLUMNS = 70


class Style(Enum):
    """What a piece of text is."""

    PLAIN = auto()
    STRONG = auto()
    NAME = auto()
    CODE = auto()  # letters and digits only
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


def located(name: str, place: str | None) -> list[str | Span]:
    """Return the name of a loop, and where it was written if that is known."""
    return [Span(name, Style.NAME), Span(at_place(place), Style.FAINT)]


def length(line: Line) -> int:
    """Return how many characters a line has."""
    return sum(len(span.text) for span in spans(line))


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign for the kind of an item, and the word for it.

    If several kinds share the sign, it is not clear: a terminal shows the word, too.
    """

    text: str
    style: Style
    word: str
    is_clear: bool = True


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a report, and what it says in short; one line, which a terminal may fold."""

    title: str
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text. An empty one is an empty line at a terminal, and nothing in Markdown."""

    text: Line = ""


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a list, at a depth: a sign for its kind, a text, and notes below it.

    Each line of an item that does not wrap is one line, which only a terminal may fold.
    """

    text: Line
    sign: Sign | None = None
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
    """Rows of cells. ``otherwise`` replaces it at a terminal narrower than ``least_width``.

    The columns of a dense table are near to each other.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Line]]
    least_width: int = 0
    otherwise: Sequence[Block] = ()
    is_dense: bool = False


@dataclass(frozen=True, slots=True)
class Preformatted:
    """Lines whose blanks count. A terminal cuts lines that are too long."""

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
    """Blocks about a loop inside of ``depth`` others; a terminal indents them."""

    blocks: Sequence[Block]
    depth: int


type Block = Heading | Paragraph | Item | Table | Preformatted | Tree | Prose | Nested


def left_out(count: int, noun: str, how: str) -> Paragraph:
    """Return the line that ends what is cut, and says how to see all of it."""
    return Paragraph(Span(f"… {plural(count, f'more {noun}')}; {how}", Style.FAINT))


def height(block: Block) -> int:
    """Return how many lines a block takes at a terminal of 80 columns, or one more."""
    match block:
        case Heading(title, verdict):
            return _folded(len(title) + len(verdict))
        case Item(text) | Paragraph(text):
            return _folded(length(text))
        case Table(columns, rows):
            return len(rows) + 3 + max(column.title.count(" ") + 1 for column in columns)
    return 1


def _folded(characters: int) -> int:
    return max(1, ceil(characters / _COLUMNS))
