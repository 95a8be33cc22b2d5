"""What a benchmark finds: plain data, for any renderer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scanopt_cli.presentation import Presented


class Clock(StrEnum):
    """Which time is compared."""

    PROCESSOR = "processor"
    """Processor time of all threads, which what else the machine does changes least."""
    WALL = "wall"
    """The time on the clock, in which waiting counts and threads do not add up."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median, and the ends of its interval of 95% confidence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a call costs on arguments of one size.

    Attributes
    ----------
    size
        The length or number that `bench` was told to grow; ``None`` without growth.
    processor, wall
        Seconds of a call, by both clocks.
    ratio
        How many times as long as a call of the reference takes; ``None`` of the reference itself.
    calls
        How many calls were timed.
    memory
        The most bytes that a call takes beyond those that the process has before it; ``None`` if
        the system does not tell.
    """

    size: int | None
    processor: Estimate
    wall: Estimate
    ratio: Estimate | None
    calls: int
    memory: int | None

    def seconds(self, clock: Clock) -> Estimate:
        """Return the time of a call by one of the clocks."""
        return self.wall if clock is Clock.WALL else self.processor


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledLoop:
    """The part of a call that a loop takes.

    Attributes
    ----------
    title
        Its name, after those of the loops around it.
    place
        Where it was written, if that is known.
    depth
        In how many other loops it is, whose time contains its own.
    calls
        How often it runs in a call; ``None`` if that is not known.
    steps
        How many steps it has in a call, all runs together; ``None`` if that is not known.
    seconds
        Its time in a call.
    overhead
        What of it is outside of the operations in its steps: handing over states and rows, and
        calling the step. ``None`` if it was not split.
    """

    title: str
    place: str | None
    depth: int
    calls: float | None
    steps: float | None
    seconds: float
    overhead: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledOperation:
    """The part of a call that equal operations in one place take.

    ``within`` is the title of the loop that they are in, ``None`` if they are in none; ``calls`` is
    how often they are computed in a call.
    """

    name: str
    within: str | None
    calls: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Where the time of a call goes.

    Attributes
    ----------
    seconds
        A whole call, as it was split.
    loops
        The loops, those of a body after it.
    operations
        The operations that are no loops, those that take most first; none if the mode compiles
        them into one function.
    rest
        What is neither of the loops nor of these operations.
    note
        How the call was split, and what could not be.
    """

    seconds: float
    loops: tuple[ProfiledLoop, ...]
    operations: tuple[ProfiledOperation, ...]
    rest: float
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one graph costs, compiled by one mode.

    Attributes
    ----------
    source, mode
        The graph and the mode.
    reference
        The position of the one that it is compared with; ``None`` of a reference.
    compilation
        Seconds of wall time of compiling the graph and calling it once, the median of the rounds.
    compilation_processor
        The same in processor time.
    compilation_memory
        The most bytes that this takes, beyond those that the process has with PyTensor imported and
        the graph read; ``None`` if the system does not tell.
    costs
        What a call costs, on each size.
    exponent
        The ``e`` of a time of a call that grows as ``size**e``, from the last size but one to the
        last; ``None`` without growth.
    profile
        Where the time goes, if that was asked for.
    """

    source: str
    mode: str
    reference: int | None
    compilation: float
    compilation_processor: float
    compilation_memory: int | None
    costs: tuple[Cost, ...]
    exponent: Estimate | None
    profile: Profile | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Benchmark(Presented):
    """What graphs cost, side by side.

    Attributes
    ----------
    arguments
        What they were called with, in words.
    is_drawn
        Whether these were drawn.
    clock
        Which time the ratios are of.
    rounds
        How many times all processes were started anew.
    grown
        The inputs that grow, the one that was named first; nothing without growth.
    measured
        One entry for each graph and mode, the reference first. Its ratios are those to the first
        graph in the same mode, or of one graph to the first mode.
    bound
        How many times as long as the reference a graph may take, if that was asked for.
    notes
        What else there is to know, such as that two graphs give other values.
    """

    arguments: str
    is_drawn: bool
    clock: Clock
    rounds: int
    grown: tuple[str, ...]
    measured: tuple[Measured, ...]
    bound: float | None
    notes: tuple[str, ...]

    @property
    def slower(self) -> tuple[Measured, ...]:
        """Those that are surely slower than the bound allows: by the low end of the interval."""
        return tuple(one for one in self.measured if self._is_slower(one))

    def reference(self, one: Measured) -> Measured:
        """Return what one is compared with; itself if with nothing."""
        return one if one.reference is None else self.measured[one.reference]

    def _is_slower(self, one: Measured) -> bool:
        bound = self.bound
        return bound is not None and any(
            cost.ratio is not None and cost.ratio.low > bound for cost in one.costs
        )
