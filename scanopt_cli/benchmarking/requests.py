"""What a child process that measures a graph is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scanopt_cli.tracing.requests import Arguments
from scanopt_cli.verification.child_process import MEMORY


@dataclass(frozen=True, slots=True)
class Growth:
    """Which input grows, by its position, to which lengths or numbers, in ascending order."""

    place: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """How arguments are made: found once, for all processes.

    Attributes
    ----------
    attempt
        Which way of drawing them, by its number; ``None`` if they are given.
    together
        Whether lengths and numbers of steps that are near to that of the input that grows grow
        with it. Lengths that must be equal to its own always do.
    """

    attempt: int | None = None
    together: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What the child measures.

    Attributes
    ----------
    graphs
        The tables of all graphs: what one requires of its arguments, those of the others fulfil.
    which
        The position of the graph that is measured.
    modes
        The mode that compiles it.
    arguments
        What it is called with: values, or how they are drawn.
    steps
        How many steps the loops have whose trip count drawn arguments decide.
    growth
        What grows, if anything does.
    timeout, memory
        Seconds of processor time, and bytes of address space.
    """

    graphs: tuple[dict[str, Any], ...]
    which: int
    modes: tuple[str, ...]
    arguments: Arguments
    steps: int
    growth: Growth | None
    timeout: float
    memory: int = MEMORY
