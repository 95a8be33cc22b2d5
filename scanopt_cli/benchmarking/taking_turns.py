"""Processes that take turns at calling their graphs, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import isclose
from statistics import median
from typing import Any

from scanopt_cli.benchmarking import estimates
from scanopt_cli.benchmarking.requests import BenchRequest, Way
from scanopt_cli.benchmarking.result import (
    Benchmark,
    Clock,
    Cost,
    Estimate,
    Measured,
    Profile,
    ProfiledLoop,
    ProfiledOperation,
)
from scanopt_cli.verification.talking_child import TalkingChild

_FINDER = "scanopt_cli.benchmarking.finder"
WORKER = "scanopt_cli.benchmarking.worker"
"""The module that measures, in a child process."""
# How long one turn is, if a call is shorter.
_TURN = 0.02
_FEWEST_TURNS, _MOST_TURNS = 3, 25
# No clock tells less.
_LEAST = 1e-9
# How far apart the sums of equal results may be.
_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Entry:
    """A graph, by its name and its position, the mode, and where its loops were written."""

    source: str
    mode: str
    which: int
    places: Mapping[str, str]

    @property
    def title(self) -> str:
        """The graph and the mode, for errors."""
        return f"{self.source}, mode {self.mode}"


@dataclass(slots=True)
class _Sample:
    """What was measured of one entry on one size, in all rounds."""

    processor: list[list[float]] = field(default_factory=list)
    wall: list[list[float]] = field(default_factory=list)
    calls: int = 0
    memory: list[int] = field(default_factory=list)
    outputs: Sequence[Mapping[str, Any] | None] = ()

    def add(self, answer: Mapping[str, Any]) -> float:
        """Add a turn to the last round; return how long it took."""
        self.processor[-1].append(max(answer["processor"], _LEAST))
        self.wall[-1].append(max(answer["wall"], _LEAST))
        self.calls += answer["calls"]
        seconds: float = answer["wall"] * answer["calls"]
        return seconds


class Turns:
    """One benchmark: processes are started, told what to do in turn, and asked for the times."""

    def __init__(
        self,
        request: BenchRequest,
        entries: Sequence[Entry],
        clock: Clock,
        seconds: float,
        progress: Callable[[str], None],
    ) -> None:
        self._request = request
        self._entries = entries
        self._clock = clock
        self._seconds = seconds
        self._progress = progress
        growth = request.growth
        self._sizes: tuple[int | None, ...] = (None,) if growth is None else growth.sizes
        self._way = Way()
        self._grown: tuple[str, ...] = ()
        self._described: Sequence[str] = ()
        self._samples = [[_Sample() for _ in self._sizes] for _ in entries]
        self._compilations: list[list[tuple[float, float]]] = [[] for _ in entries]
        self._peaks: list[list[int]] = [[] for _ in entries]
        self._profiles: list[Profile | None] = [None for _ in entries]

    def find_arguments(self) -> None:
        """Find out which arguments fit the first graph, if they are drawn or grow."""
        request = self._request
        if request.arguments.values is not None and request.growth is None:
            return
        self._progress("looking for arguments")
        first = replace(request, which=self._entries[0].which, modes=(self._entries[0].mode,))
        with TalkingChild(_FINDER, first, self._entries[0].source) as child:
            found = child.ask("find", "looking for arguments")
        self._way = Way(found["attempt"], found["together"])
        self._grown = tuple(map(str, found["grown"]))

    def take(self, number: int, of: int) -> None:
        """Start all processes anew, and let them take turns."""
        order = list(range(len(self._entries)))
        if number % 2:
            order.reverse()
        now = f"round {number + 1} of {of}"
        with ExitStack() as stack:
            children: dict[int, TalkingChild] = {}
            for place in order:
                children[place] = stack.enter_context(self._child(self._entries[place]))
            for place in order:
                self._progress(f"{now}: compiling {self._entries[place].title}")
                self._compile(place, children[place])
            for position, size in enumerate(self._sizes):
                at = "" if size is None else f" at {size}"
                self._progress(f"{now}: calling{at}")
                for place in order:
                    if position:
                        self._first(place, position, children[place])
                    answer = children[place].ask("memory", f"measuring memory{at}")
                    if answer["bytes"] is not None:
                        self._samples[place][position].memory.append(int(answer["bytes"]))
                self._call(position, order, children)

    def _child(self, entry: Entry) -> TalkingChild:
        request = replace(self._request, which=entry.which, modes=(entry.mode,))
        return TalkingChild(WORKER, request, entry.title)

    def _compile(self, place: int, child: TalkingChild) -> None:
        done = child.ask("compile", "compiling")
        called = self._first(place, 0, child)
        self._compilations[place].append(
            (done["wall"] + called["wall"], done["processor"] + called["processor"])
        )
        peak = child.ask("peak", "measuring memory")["bytes"]
        if peak is not None:
            self._peaks[place].append(int(peak))

    def _first(self, place: int, position: int, child: TalkingChild) -> Mapping[str, Any]:
        """Let a process call its graph once, on arguments of a size."""
        answer = child.ask("first", "calling", **self._arguments(self._sizes[position]))
        self._samples[place][position].outputs = answer["outputs"]
        self._described = answer["arguments"]
        return answer

    def _arguments(self, size: int | None) -> dict[str, Any]:
        return {"attempt": self._way.attempt, "together": self._way.together, "size": size}

    def _call(self, position: int, order: list[int], children: Mapping[int, TalkingChild]) -> None:
        """Let processes call their graphs in turn, each other time the other way round."""
        samples = {place: self._samples[place][position] for place in order}
        for sample in samples.values():
            sample.processor.append([])
            sample.wall.append([])
        turn, turns = 0, 1
        while turn < turns:
            longest = 0.0
            for place in order if turn % 2 else reversed(order):
                answer = children[place].ask("turn", "calling", seconds=min(_TURN, self._seconds))
                longest = max(longest, samples[place].add(answer))
            if not turn:
                wanted = int(self._seconds / max(longest, _LEAST))
                turns = min(max(wanted, _FEWEST_TURNS), _MOST_TURNS)
            turn += 1

    def profile(self) -> None:
        """Find out where the time goes, each graph and mode in a process of its own."""
        for place, entry in enumerate(self._entries):
            self._progress(f"profiling {entry.title}")
            with self._child(entry) as child:
                told = child.ask(
                    "profile",
                    "profiling",
                    seconds=self._seconds,
                    **self._arguments(self._sizes[-1]),
                )
            loops = [
                replace(loop, place=entry.places.get(loop.title))
                for loop in (ProfiledLoop(**one) for one in told["loops"])
            ]
            operations = tuple(ProfiledOperation(**one) for one in told["operations"])
            self._profiles[place] = Profile(
                **{**told, "loops": tuple(loops), "operations": operations}
            )

    def result(self, *, rounds: int, bound: float | None, text: str, is_drawn: bool) -> Benchmark:
        """Return what was found."""
        described = ", ".join(self._described)
        origin = f"drawn, seed {self._request.arguments.seed}" if is_drawn else text
        return Benchmark(
            arguments=f"{origin}: {described}" if described else origin,
            is_drawn=is_drawn,
            clock=self._clock,
            rounds=rounds,
            grown=self._grown,
            measured=tuple(map(self._measured, range(len(self._entries)))),
            bound=bound,
            notes=tuple(self._notes()),
        )

    def _reference(self, place: int) -> int | None:
        """Return which entry one is compared with: the first graph, or of one graph, mode."""
        several = len({entry.which for entry in self._entries}) > 1
        mode = self._entries[place].mode
        found = next(
            other for other, entry in enumerate(self._entries) if entry.mode == mode or not several
        )
        return None if found == place else found

    def _measured(self, place: int) -> Measured:
        entry, peaks = self._entries[place], self._peaks[place]
        wall, processor = zip(*self._compilations[place], strict=True)
        costs = tuple(self._cost(place, position) for position in range(len(self._sizes)))
        return Measured(
            source=entry.source,
            mode=entry.mode,
            reference=self._reference(place),
            compilation=median(wall),
            compilation_processor=median(processor),
            compilation_memory=int(median(peaks)) if peaks else None,
            costs=costs,
            exponent=self._exponent(costs),
            profile=self._profiles[place],
        )

    def _cost(self, place: int, position: int) -> Cost:
        sample, reference = self._samples[place][position], self._reference(place)
        ratio: Estimate | None = None
        if reference is not None:
            other = self._samples[reference][position]
            ratio = estimates.ratio(self._times(sample), self._times(other))
        return Cost(
            size=self._sizes[position],
            processor=estimates.median(sample.processor),
            wall=estimates.median(sample.wall),
            ratio=ratio,
            calls=sample.calls,
            memory=min(sample.memory) if sample.memory else None,
        )

    def _times(self, sample: _Sample) -> list[list[float]]:
        return sample.wall if self._clock is Clock.WALL else sample.processor

    def _exponent(self, costs: Sequence[Cost]) -> Estimate | None:
        if len(costs) < 2:
            return None
        small, large = costs[-2:]
        assert small.size is not None
        assert large.size is not None
        times = small.seconds(self._clock), large.seconds(self._clock)
        return estimates.exponent((small.size, large.size), times)

    def _notes(self) -> list[str]:
        found = []
        for place, entry in enumerate(self._entries):
            samples = self._samples[place]
            if any(one is not None and not one["finite"] for s in samples for one in s.outputs):
                found.append(f"{entry.title}: results hold NaN or infinities")
            first = self._samples[0]
            if not all(_alike(s.outputs, f.outputs) for s, f in zip(samples, first, strict=True)):
                found.append(
                    f"{entry.title}: other results than {self._entries[0].title}; "
                    "scanopt verify says which"
                )
        return found


def _alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether results may be equal, by their shapes and sums."""
    return all(
        a is None
        or b is None
        or (a["shape"] == b["shape"] and isclose(a["sum"], b["sum"], rel_tol=_TOLERANCE))
        for a, b in zip(one, other, strict=True)
    )
