"""The strategies side by side: what each would build, what that costs, and why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from time import thread_time

from scanopt_cli.analysis.call_costs import operations
from scanopt_cli.analysis.statistics import Statistics, buffer_formula, statistics
from scanopt_cli.autodiff.choices import Strategy
from scanopt_cli.autodiff.choosing import Choice
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.text import plural

PRESET = "grad"
"""The passes that run before what a strategy builds is counted."""
LENGTH = 100
"""What costs are compared at, where lengths are not known."""
# Strategies that were not asked for are built only from graphs of so many nodes, those in loops
# among them, only to so many loops, and only until so many seconds of processor time have passed.
# What has more nodes when it is built is not cleaned.
_MOST_NODES = 1_000
_MOST_BUILT = 5_000
_MOST_SCANS = 32
_SECONDS = 5.0
# What these build for order 1 is what the others build.
_SAME_AT_FIRST = {
    Strategy.TAYLOR: Strategy.FORWARD,
    Strategy.FORWARD_OVER_REVERSE: Strategy.REVERSE,
}
# Costs that are nearer to each other are taken for equal.
_NEAR = 0.02


class CandidateStatus(StrEnum):
    """What is known of a strategy."""

    CHOSEN = "chosen"
    COUNTED = "counted"
    REFUSED = "refused"
    LEFT_OUT = "left-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A strategy, and what it would build.

    Attributes
    ----------
    strategy
        The strategy.
    verdict
        ``chosen``; ``counted`` beside it; ``refused``, if it does not apply; or ``left-out``, if
        building it may take long.
    reason
        Why it is chosen, why it is not, or why it does not apply.
    is_raw
        Whether it was counted as PyTensor builds it. Otherwise after the preset `PRESET`.
    statistics
        The counts; ``None`` if it was not built.
    operations
        The results of arithmetic that a call computes: a formula.
    cost, memory
        What ``operations`` and the bytes of loop buffers are, relative to those of the chosen
        strategy, where each unknown length is `LENGTH`.
    """

    strategy: Strategy
    verdict: CandidateStatus
    reason: str
    is_raw: bool = False
    statistics: Statistics | None = None
    operations: str | None = None
    cost: float | None = None
    memory: float | None = None


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a strategy builds, in figures."""

    statistics: Statistics
    operations: str
    cost: float
    memory: float

    @classmethod
    def of(cls, graph: Graph) -> _Counted:
        computed = operations(graph.fgraph)
        memory = buffer_formula(graph.fgraph).at(LENGTH)
        return cls(statistics(graph.fgraph), str(computed), computed.at(LENGTH), memory)


@dataclass(slots=True)
class StrategyComparison:
    """Builds what other strategies would, and compares it with what was chosen.

    Attributes
    ----------
    order
        The order of the derivative.
    counts
        What the graph to differentiate has.
    build
        Builds the derivative by a strategy.
    why_not
        Returns why a strategy does not apply; ``None`` if it may.
    """

    order: int
    counts: Statistics
    build: Callable[[Strategy], Graph]
    why_not: Callable[[Strategy], str | None]
    announce: Callable[[str], None]
    _end: float = field(default=0.0, init=False)

    def run(self, choice: Choice, chosen: Graph) -> tuple[Candidate, ...]:
        """Return the candidates: reverse mode as PyTensor builds it, the chosen one, the others."""
        self._end = thread_time() + _SECONDS
        self.announce(f"{choice.strategy}: counting")
        best = _Counted.of(optimize(chosen, PRESET).graph)
        first = _chosen(choice, best)
        others = list(self._others(choice.strategy, chosen, best))
        raw = [one for one in others if one.is_raw]
        return (*raw, first, *(one for one in others if not one.is_raw))

    def _others(self, chosen: Strategy, graph: Graph, best: _Counted) -> Iterator[Candidate]:
        if chosen is Strategy.REVERSE:
            yield _beside(Strategy.REVERSE, _Counted.of(graph), best, is_raw=True)
        for strategy in self._strategies(chosen):
            why = self.why_not(strategy)
            if why is not None:
                yield Candidate(strategy=strategy, verdict=CandidateStatus.REFUSED, reason=why)
                continue
            long = self._takes_long(strategy)
            if long:
                yield Candidate(strategy=strategy, verdict=CandidateStatus.LEFT_OUT, reason=long)
                continue
            self.announce(f"{strategy}, order {self.order}")
            try:
                built = self.build(strategy)
            except ScanoptError as error:
                yield Candidate(
                    strategy=strategy, verdict=CandidateStatus.REFUSED, reason=error.what
                )
                continue
            if strategy is Strategy.REVERSE:
                yield _beside(strategy, _Counted.of(built), best, is_raw=True)
            yield self._cleaned(strategy, built, best)

    def _cleaned(self, strategy: Strategy, built: Graph, best: _Counted) -> Candidate:
        nodes = _nodes(statistics(built.fgraph))
        if nodes > _MOST_BUILT:
            reason = f"not cleaned: {nodes:,} nodes are built"
            return Candidate(strategy=strategy, verdict=CandidateStatus.LEFT_OUT, reason=reason)
        return _beside(strategy, _Counted.of(optimize(built, PRESET).graph), best)

    def _strategies(self, chosen: Strategy) -> list[Strategy]:
        """Return the strategies that build something else than the chosen one."""
        found = [Strategy.REVERSE, Strategy.FORWARD]
        if self.order > 1:
            found += [Strategy.TAYLOR, Strategy.FORWARD_OVER_REVERSE]
        same = _SAME_AT_FIRST.get(chosen, chosen) if self.order == 1 else chosen
        return [strategy for strategy in found if strategy is not same]

    def _takes_long(self, strategy: Strategy) -> str | None:
        """Return why building a strategy may take long."""
        nodes = _nodes(self.counts)
        if nodes > _MOST_NODES:
            return f"not built: {nodes:,} nodes to differentiate"
        loops = _loops(self.counts) * (2**self.order if strategy is Strategy.REVERSE else 2)
        if loops > _MOST_SCANS:
            return f"not built: it would make {loops} loops"
        if thread_time() > self._end:
            return f"not built: {_SECONDS:.0f} seconds were over"
        return None


def compared_strategies(built: Sequence[tuple[Choice, Graph]]) -> tuple[Candidate, ...]:
    """Return candidates for strategies that were all asked for; the first is the chosen one."""
    counted = [_Counted.of(optimize(graph, PRESET).graph) for _, graph in built]
    best = counted[0]
    found = []
    for (choice, graph), one in zip(built, counted, strict=True):
        strategy = choice.strategy
        if strategy is Strategy.REVERSE:
            found.append(_beside(strategy, _Counted.of(graph), best, is_raw=True))
        found.append(_chosen(choice, best) if one is best else _beside(strategy, one, best))
    return tuple(found)


def _nodes(counts: Statistics) -> int:
    return counts.outer_nodes + counts.inner_nodes


def _loops(counts: Statistics) -> int:
    return counts.scans + counts.loops


def _chosen(choice: Choice, best: _Counted) -> Candidate:
    beside_itself = _beside(choice.strategy, best, best)
    return replace(beside_itself, verdict=CandidateStatus.CHOSEN, reason=choice.reason)


def _beside(
    strategy: Strategy, counted: _Counted, best: _Counted, *, is_raw: bool = False
) -> Candidate:
    cost, memory = _ratio(counted.cost, best.cost), _ratio(counted.memory, best.memory)
    return Candidate(
        strategy=strategy,
        verdict=CandidateStatus.COUNTED,
        reason="" if is_raw else ", ".join(_differences(counted, best, cost, memory)),
        is_raw=is_raw,
        statistics=counted.statistics,
        operations=counted.operations,
        cost=cost,
        memory=memory,
    )


def _ratio(value: float, other: float) -> float | None:
    if other:
        return round(value / other, 2)
    return None if value else 1.0


def _differences(
    counted: _Counted, best: _Counted, cost: float | None, memory: float | None
) -> Sequence[str]:
    """Return what is worse or better than the chosen strategy, in words."""
    found = []
    if cost is not None and abs(cost - 1) > _NEAR:
        found.append(f"{cost:.3g} times the operations")
    if memory is not None and abs(memory - 1) > _NEAR:
        found.append(f"{memory:.3g} times the memory of loops")
    elif memory is None:
        found.append("memory for loops")
    more = _loops(counted.statistics) - _loops(best.statistics)
    if more:
        found.append(f"{plural(abs(more), 'loop')} {'more' if more > 0 else 'fewer'}")
    return found or ["the same cost"]
