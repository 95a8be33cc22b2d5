"""What a page is made of, as plain data; `scanopt_cli.page.rendering` writes it as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from scanopt_cli.page.picture import Picture, Remarked
from scanopt_cli.reports.document import Block


class Tone(StrEnum):
    """How a verdict is meant: it is shown by a sign and a word as well as by a colour."""

    GOOD = "good"
    NEUTRAL = "neutral"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row of the table of passes.

    Attributes
    ----------
    name
        The name of the pass, or what else the row is about.
    change
        What it changed, in counts.
    stage
        The place of the stage in the picture that it left; ``None`` if there is none.
    seconds
        How long it took, where that is known.
    remarks
        What it says of its work: for each, its kind, the loop, and the text.
    """

    name: str
    change: str = ""
    stage: int | None = None
    seconds: float | None = None
    remarks: Sequence[Remarked] = ()


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of passes in order, each a row; ``drawn`` is the place of the picture of stages."""

    rows: Sequence[Run]
    drawn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page's text; one that is not open is folded under its title.

    ``runs`` are a table of passes, below the blocks.
    """

    title: str
    blocks: Sequence[Block] = ()
    is_open: bool = True
    runs: Runs | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """How long a part of the work took, in seconds by the clock, and of that its own parts."""

    what: str
    seconds: float
    parts: Sequence[Spent] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A picture of a graph.

    Attributes
    ----------
    title
        The name of the graph's file.
    picture
        Its stages.
    side_by_side
        Whether the first and the last stage are shown beside each other at first.
    """

    title: str
    picture: Picture
    side_by_side: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page.

    Attributes
    ----------
    command
        The command that made it, as it was typed: ``scanopt check model.pkl``.
    title
        What it is about, in a few words.
    verdict
        What was found, in one sentence.
    tone
        How the verdict is meant.
    times
        What took how long, in the order in which it was done; nothing if that was not measured.
    sections
        The text, most important first.
    drawn
        The pictures, one for each graph.
    """

    command: str
    title: str
    verdict: str
    tone: Tone = Tone.NEUTRAL
    times: Sequence[Spent] = ()
    sections: Sequence[Section] = ()
    drawn: Sequence[Drawn] = field(default=())
