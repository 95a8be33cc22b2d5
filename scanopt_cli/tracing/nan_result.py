"""The result of a search for the first NaN or infinity: plain data, for any renderer."""

from __future__ import annotations

from dataclasses import dataclass

from scanopt_cli.presentation import Presented
from scanopt_cli.tracing.result import OuterStep


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadValue:
    """What a node reads: its expression, its value in a few words, and whether it is bad itself."""

    name: str
    value: str
    is_bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BadNode:
    """A node that computes a NaN or an infinity, and what it reads.

    Attributes
    ----------
    why
        ``domain``: a NaN of numbers; ``pole``: an infinity of a division by zero or a logarithm of
        zero; ``overflow``: an infinity of other numbers; ``indefinite``: a NaN of infinities, as
        ``inf - inf`` is; ``constant``: a constant is that; ``passed on``: what it reads is bad
        already.
    name
        What it computes: ``log(x[t])``.
    value
        That value in a few words.
    loop, place, outer_steps, step
        The loop that it is in, ``None`` outside of all loops; where that was written, the steps of
        the loops around it, and the step.
    inputs
        What it reads.
    """

    why: str
    name: str
    value: str
    loop: str | None = None
    place: str | None = None
    outer_steps: tuple[OuterStep, ...] = ()
    step: int | None = None
    inputs: tuple[ReadValue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmlessNode:
    """A node whose NaNs or infinities reach no slot of its loop, and in how many steps."""

    name: str
    value: str
    loop: str | None
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FirstNan(Presented):
    """The first NaN or infinity that a slot of a loop, or an output of the graph, holds.

    Attributes
    ----------
    source
        The graph.
    arguments, is_drawn
        What it was evaluated on, and whether that was drawn.
    allows_inf
        Whether infinities are as good as numbers.
    counts_masked
        Whether one that no slot and no output holds counts as well.
    held_by
        Inputs of the graph that hold a NaN or an infinity, each with what it holds.
    node
        The node that computed it first, or passed it on from an input; ``None`` if there is none.
    slot
        The slot that holds it at the end of that step, or the output of the graph; ``None`` if none
        does, which is a finding only if what is masked counts.
    is_from_input
        Whether no node made it: what feeds the graph held it.
    reaches
        The outputs of the graph that hold a NaN or an infinity in the end.
    harmless
        Nodes that computed a NaN or an infinity before, which reached no slot: a branch of a switch
        that is not taken, say.
    steps
        How many steps were looked at.
    """

    source: str = "<memory>"
    arguments: str = ""
    is_drawn: bool = False
    allows_inf: bool = False
    counts_masked: bool = False
    held_by: tuple[ReadValue, ...] = ()
    node: BadNode | None = None
    slot: str | None = None
    is_from_input: bool = False
    reaches: tuple[str, ...] = ()
    harmless: tuple[HarmlessNode, ...] = ()
    steps: int = 0

    @property
    def is_bad(self) -> bool:
        """Whether there is a NaN or an infinity that is not allowed."""
        return self.node is not None
