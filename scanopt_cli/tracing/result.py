"""The results of tracing: plain data, for any renderer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scanopt_cli.presentation import Presented


@dataclass(frozen=True, slots=True)
class OuterStep:
    """The step of a loop around, in which a loop was traced."""

    loop: str
    step: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SlotTrace(Presented):
    """The values of a slot, of the condition, or of a node inside, at the steps of a `LoopTrace`.

    Attributes
    ----------
    name
        The name that `inspect` has for the slot, with the tap of a mit_mot; of a node, what it
        computes: ``tanh(W @ h[t-1])``.
    kind
        The kind of the slot, ``stops when`` or ``goes on while``, or ``node``.
    values
        What a step computes for the slot, or reads of a sequence: an array with a row for each
        step, or an array for each step if they differ in shape. Of a constant, its value. What is
        no array is a text.
    initial
        What a state is before the first step, the oldest value first.
    is_constant
        Whether it is the same in all steps.
    """

    name: str
    kind: str
    values: np.ndarray | tuple[np.ndarray, ...]
    initial: tuple[np.ndarray, ...] = ()
    is_constant: bool = False

    def __eq__(self, other: object) -> bool:
        """Whether all values are the same; a NaN is the same as another."""
        if not isinstance(other, SlotTrace):
            return NotImplemented
        told = [(one.name, one.kind, one.is_constant) for one in (self, other)]
        rows = [[*one.rows, *one.initial] for one in (self, other)]
        return told[0] == told[1] and (len(rows[0]) == len(rows[1]) and all(map(_are_same, *rows)))

    def __hash__(self) -> int:
        """Return a hash of the name and the kind."""
        return hash((self.name, self.kind))

    @property
    def rows(self) -> list[np.ndarray]:
        """The value at each step, or the one value of a constant."""
        return [np.asarray(self.values)] if self.is_constant else list(map(np.asarray, self.values))

    @property
    def dtype(self) -> str:
        """The dtype of the values, ``text`` of what is no array."""
        rows = self.rows or list(self.initial)
        found = next((row.dtype for row in rows), None)
        return "" if found is None else "text" if found.kind == "U" else str(found)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a value; ``None`` if it changes from step to step, or there is no step."""
        shapes = {row.shape for row in self.rows}
        return shapes.pop() if len(shapes) == 1 else None


def _are_same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


@dataclass(frozen=True, kw_only=True, repr=False)
class LoopTrace(Presented):
    """One loop, step by step.

    ``trace["h"]`` is the `SlotTrace` of the slot or node of that name.

    Attributes
    ----------
    kind
        ``Scan`` or ``TracedLoop``.
    name, path
        Its name, and those of the loops and graphs around it.
    place
        Where it was written (``model.py:41 in step``), if that is known.
    outer_steps
        In which steps of the loops around it was traced.
    is_batched
        Whether it is the first entry of a batch.
    steps
        The steps that were kept.
    n_steps
        How many steps were run.
    most_steps
        How many it runs at most.
    is_complete
        Whether it was run to its end: not, if only its first steps were asked for.
    error
        The error of the step after the last one, if that raised one.
    slots
        The traces of the slots, and of the condition.
    nodes
        Those of the nodes inside, in the order of computation, if they were asked for.
    """

    kind: str
    name: str
    path: tuple[str, ...]
    place: str | None
    outer_steps: tuple[OuterStep, ...]
    is_batched: bool
    steps: tuple[int, ...]
    n_steps: int
    most_steps: int
    is_complete: bool
    error: str | None
    slots: tuple[SlotTrace, ...]
    nodes: tuple[SlotTrace, ...] = ()

    @property
    def title(self) -> str:
        """The name of the loop after those around it, joined by ``/``."""
        return "/".join((*self.path, self.name))

    @cached_property
    def _by_name(self) -> dict[str, SlotTrace]:
        return {one.name: one for one in (*self.nodes[::-1], *self.slots[::-1])}

    def __getitem__(self, name: str) -> SlotTrace:
        return self._by_name[name]


@dataclass(frozen=True, kw_only=True, repr=False)
class Trace(Presented):
    """What loops compute at each step.

    Attributes
    ----------
    source
        The graph.
    arguments
        What it was evaluated on: ``recorded call 1``, ``given``, or how they were drawn.
    is_drawn
        Whether the arguments were drawn.
    loops
        The loops.
    """

    source: str
    arguments: str
    is_drawn: bool
    loops: tuple[LoopTrace, ...]

    def __getitem__(self, name: str) -> LoopTrace:
        for loop in self.loops:
            if name in (loop.title, loop.name):
                return loop
        raise KeyError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOfValues:
    """A value in each of two graphs, with what computes it; ``None`` where one has none."""

    name_a: str | None
    name_b: str | None
    a: str | None
    b: str | None
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPair:
    """Two loops that were run side by side, and for how many steps.

    ``longer`` names the graph, ``A`` or ``B``, in which the loop has more steps than were compared.
    """

    name_a: str
    name_b: str
    place: str | None
    steps: int
    longer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FirstDifference(Presented):
    """The first step, and the first node inside, at which the loops of two graphs differ.

    That one loop has more steps is no difference: optimized loops run those alone that are read.

    Attributes
    ----------
    arguments
        What the graphs were evaluated on.
    is_drawn
        Whether these were drawn.
    loops
        The loops that were run side by side, the one that differs last.
    unmatched
        Loops of either graph without a counterpart, which were not compared.
    kind
        What differs first: ``input``, what a step reads; ``node``, what it computes; ``error``,
        that only one raises. ``None`` if nothing does.
    outer_steps
        Of a loop inside of others, the steps of those.
    step
        The step.
    slot
        The slot that shows the difference at the end of that step.
    at
        The value that differs, and what computes it.
    by
        By how much, and in how many entries.
    inputs
        What the node reads, in both graphs.
    """

    arguments: str = ""
    is_drawn: bool = False
    loops: tuple[LoopPair, ...] = ()
    unmatched: tuple[str, ...] = ()
    kind: str | None = None
    outer_steps: tuple[OuterStep, ...] = ()
    step: int | None = None
    slot: str | None = None
    at: PairOfValues | None = None
    by: str | None = None
    inputs: tuple[PairOfValues, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the loops differ."""
        return self.kind is not None

    @property
    def steps(self) -> int:
        """How many steps were compared, in all loops together."""
        return sum(loop.steps for loop in self.loops)
