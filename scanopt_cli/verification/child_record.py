"""The record that the child process keeps for its parent: entries, each a line of JSON.

The parent reads them with nothing that can run code, since the child evaluates foreign graphs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from scanopt_cli.verification.comparison import Comparison
from scanopt_cli.verification.result import Difference


@dataclass(frozen=True, slots=True)
class Doing:
    """What the child begins to do; of a child that died, the last one says at what."""

    what: str


@dataclass(frozen=True, slots=True)
class Unevaluated:
    """A run without values to compare, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class CompiledRun:
    """How the second graph differs once a mode has compiled it, on the arguments of one run."""

    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class ModeNote:
    """What a mode does to both graphs, which is no difference between them."""

    text: str


@dataclass(frozen=True, slots=True)
class AppliedRewrite:
    """A rewrite of PyTensor's that was applied.

    Attributes
    ----------
    number
        Which one it is, counted from 1.
    rewriter
        The name of the rewriter.
    within
        The rewriters that ran it, outermost first: those of PyTensor's database, mostly.
    position
        Where the outermost of them is in that database; ``None`` if it is in none.
    place
        The file and line of the rewriter, if it has some.
    node
        The node that was replaced, as PyTensor prints it; ``None`` for a rewriter of graphs.
    function
        Which function was compiled, if it is one of several that a command compiles.
    """

    number: int
    rewriter: str
    within: tuple[str, ...]
    position: float | None
    place: str | None
    node: str | None
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """How many of PyTensor's rewrites a mode applied, the last of them, and what it raised then."""

    count: int
    last: AppliedRewrite | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Timed:
    """The wall time of one compilation of a graph by a mode, or of one call of what it made."""

    graph: str
    mode: str
    is_call: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """Why not everything was evaluated."""

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a record that is complete."""


type Entry = (
    Doing | Comparison | Unevaluated | CompiledRun | ModeNote | Rewritten | Timed | Failed | Done
)
"""An entry of the record; a `Comparison` is that of one run of both graphs as they are."""

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Doing,
        Comparison,
        Unevaluated,
        CompiledRun,
        ModeNote,
        Rewritten,
        Timed,
        Failed,
        Done,
    )
}


@dataclass(frozen=True, slots=True)
class Record:
    """What the child wrote before it ended, and why it failed, if it did."""

    entries: Sequence[Entry]
    failure: str | None = None

    def of[E](self, kind: type[E]) -> list[E]:
        """Return the entries of one class."""
        return [entry for entry in self.entries if isinstance(entry, kind)]


def to_line(entry: Entry) -> str:
    """Return the text of an entry, on one line."""
    return json.dumps([type(entry).__name__, asdict(entry)])


def from_line(line: str) -> Entry:
    """Return the entry that `to_line` wrote.

    Raises
    ------
    json.JSONDecodeError
        If the line is incomplete.
    """
    kind, fields = json.loads(line)
    found: Entry = _value(_KINDS[kind], fields)
    return found


def _value(wanted: Any, data: Any) -> Any:
    """Return the value of a type that JSON has as ``data``."""
    if isinstance(wanted, type) and is_dataclass(wanted):
        types = _types(wanted)
        return wanted(**{name: _value(types[name], field) for name, field in data.items()})
    inside = get_args(wanted)
    if type(None) in inside:
        return None if data is None else _value(inside[0], data)
    return tuple(_value(inside[0], item) for item in data) if inside else wanted(data)


_types = cache(get_type_hints)
