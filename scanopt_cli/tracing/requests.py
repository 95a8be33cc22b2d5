"""What the child process is asked to trace, and the arguments that it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scanopt_cli.tracing.step_range import StepRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments of a graph: given, or drawn.

    Attributes
    ----------
    values
        One for each input, shared variables included; ``None`` if they are drawn.
    text
        Where they are from, unless they are drawn.
    contents
        The contents of shared variables, by position.
    seed
        The seed of those that are drawn.
    """

    values: tuple[Any, ...] | None
    text: str
    contents: Mapping[int, Any]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLoop:
    """A loop to trace: its position among the named loops, and the positions of its slots."""

    position: int
    slots: tuple[int, ...]
    outer_steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """What the child traces.

    Attributes
    ----------
    graphs
        The tables of the graph.
    arguments
        What it is evaluated on.
    loops
        The loops that are traced.
    steps
        The steps of each.
    inner
        Whether the nodes inside are traced, too.
    timeout
        Seconds of processor time that the child may use.
    """

    graphs: tuple[dict[str, Any], ...]
    arguments: Arguments
    loops: tuple[WantedLoop, ...]
    steps: StepRange
    inner: bool
    timeout: float

    @property
    def modes(self) -> tuple[str, ...]:
        """No mode compiles the graph."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NanRequest:
    """A graph in which the child looks for the first NaN or, unless allowed, infinity."""

    graphs: tuple[dict[str, Any], ...]
    arguments: Arguments
    allow_inf: bool
    masked: bool
    timeout: float

    @property
    def modes(self) -> tuple[str, ...]:
        """No mode compiles the graph."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRequest:
    """Two graphs over the same inputs, whose loops the child runs side by side."""

    graphs: tuple[dict[str, Any], ...]
    arguments: Arguments
    timeout: float

    @property
    def modes(self) -> tuple[str, ...]:
        """No mode compiles the graphs."""
        return ()
