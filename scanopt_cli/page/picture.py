"""The picture of a graph as plain data: what the script of a page draws.

A *level* is one graph: that of the file, or a body. It has *boxes*, one for each input, operation,
loop, inner graph and output, and edges between their ports. A box that holds a graph names the
level of its body, so that equal bodies are there once. Boxes of large levels are in *groups*, which
the page folds: no box of a group reads what reads another box of the group through boxes outside,
so the folded picture has no cycles either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

type Remarked = tuple[str, str, str]
"""A remark: its kind, the loop that it is on, and its text."""


class BoxKind(StrEnum):
    """What a box stands for."""

    INPUT = "input"
    OPERATION = "op"
    LOOP = "loop"
    GRAPH = "graph"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A slot of a loop, or an input or output of an inner graph.

    Attributes
    ----------
    name, kind, taps, out_taps, type, fed_by, inside, read_by, rows, memory
        As in `scanopt_cli.analysis.inspection.SlotReport`; ``type`` has the dtype and the shape of
        a row, ``memory`` the size with its unit.
    note
        What else there is to know of its buffer: that it is trimmed.
    size
        How many bytes its buffer takes, where each length that is not known is 100.
    values
        What it holds when the graph is called with some arguments, in short, if that was traced.
    """

    name: str
    kind: str
    taps: tuple[int, ...] = ()
    out_taps: tuple[int, ...] = ()
    type: str = ""
    fed_by: str = ""
    inside: str = ""
    read_by: tuple[str, ...] = ()
    rows: str = ""
    memory: str = ""
    note: str = ""
    size: float = 0.0
    values: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """What a port of a box reads: a port of another box of the level."""

    port: int
    box: int
    from_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A part of a level.

    Attributes
    ----------
    id
        Its number, which a box of another stage has that corresponds to it.
    kind
        What it stands for.
    label
        The name of an input, of an operation, or of a loop.
    text
        The expression that it computes, of which the innermost operations are left out.
    whole
        If ``text`` leaves out some: its own operation in pieces, where a number stands for what the
        input of that place computes, which the box has that makes it.
    type
        The type of its result.
    edges
        What it reads.
    place
        Where the program made it, if that is known.
    facts
        What there is to know of a loop, each a line.
    ports
        The slots of a loop; the inputs and outputs of an inner graph.
    body
        The level of its body.
    digest
        What it computes, in few letters: equal for equal loops. Of an operation, what its Op does.
    raises
        Of a check, the error that it raises, and when.
    slot
        Of an input or output of a body, the place of its port among those of the box around it.
    """

    id: int
    kind: BoxKind
    label: str
    text: str = ""
    whole: tuple[str | int, ...] = ()
    type: str = ""
    edges: tuple[Edge, ...] = ()
    place: str = ""
    facts: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    body: str = ""
    digest: str = ""
    raises: str = ""
    slot: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Boxes, by their numbers, and smaller groups, that the page shows as one box."""

    id: str
    label: str
    members: tuple[int | Group, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One graph: its boxes in topological order, and what the page shows of it at first."""

    boxes: tuple[Box, ...]
    shown: tuple[int | Group, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A graph at one time: as it was given, or as a pass left it.

    Attributes
    ----------
    title
        The name of the graph or of the pass.
    level
        The level of the graph.
    seconds
        How long the pass took, in this run of it, where that is known.
    remarks
        What it says of its work.
    """

    title: str
    level: str
    seconds: float | None = None
    remarks: tuple[Remarked, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The stages of a graph, and all levels that they show, by name."""

    stages: Sequence[Stage]
    levels: Mapping[str, Level] = field(default_factory=dict)
