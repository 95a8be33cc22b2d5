"""`reduce`: the smallest graph that is still broken (delta debugging, greedy).

After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), and LLVM's
``llvm-reduce``: candidates are tried in a fixed order, and the first that is smaller and still
broken takes the graph's place, until none is. One that is broken in another way, such as by another
error, does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from scanopt_cli.culprits.properties import Limits, Outcome, Property, State, ValuesDiffer
from scanopt_cli.culprits.reductions import OF_ARGUMENTS, REDUCTIONS, Reduction, size
from scanopt_cli.culprits.running import PassRunner
from scanopt_cli.culprits.smaller_inputs import Candidate
from scanopt_cli.culprits.tried import Tried, graph_key, reduction_key
from scanopt_cli.errors import ScanoptError, VerificationError
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph, loaded_graph
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.driver import n_nodes
from scanopt_cli.pipeline.grammar import as_passes, print_pipeline
from scanopt_cli.presentation import Presented
from scanopt_cli.serialization.unpickler.generators import as_text
from scanopt_cli.verification.spawning import Gate

# How the kind of a failure of a pass begins.
_FAILS = "pass "


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Reduced(Presented):
    """A graph that is still broken, and as small as `reduce` could make it.

    Attributes
    ----------
    graph
        The graph.
    property
        What is wrong with it, in words.
    pipeline
        The passes after which it is wrong, ``none`` for none.
    why
        What was seen of it.
    is_failing
        Whether what is wrong is that a pass raises an error, or ends its process.
    before, after
        How many nodes the graph had, and has, bodies included.
    tried, kept
        How many smaller graphs were tried, and how many of them were still broken.
    remembered
        How many of them a call before this one has tried.
    is_minimal
        Whether no smaller graph that was tried is broken; false if ``most`` were tried before that
        was known.
    """

    graph: Graph = field(metadata={"as_json": False})
    property: str
    pipeline: str
    why: str
    is_failing: bool
    before: int
    after: int
    tried: int
    kept: int
    remembered: int
    is_minimal: bool


def reduce(
    graph: GraphLike,
    passes: str | Sequence[Pass] = "none",
    *,
    wrong: Property | None = None,
    limits: Limits | None = None,
    rewriter: str | None = None,
    most: int | None = None,
    tried: Path | None = None,
    found: Callable[[Graph], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Reduced:
    """Make ``graph`` smaller while it stays broken, until nothing more can be taken away.

    Outputs go, or operands become outputs; inputs, constants and operands take the place of nodes,
    in bodies too; one step takes the place of a loop, or the loop gets few steps; slots that
    nothing reads, equal nodes and OpFromGraphs go; recorded calls go; inputs get shorter, as their
    types or recorded values say, and recorded values become 1. The result is the same each time, if
    the property is. A call that was interrupted, or that tried as many as it may, goes on if it is
    made again with the same file for what was ``tried``.

    Parameters
    ----------
    graph
        A loaded graph, the path of its file, a FunctionGraph or an ``(inputs, outputs)`` pair.
    passes
        The graph is broken if what these passes make of it is, compared with itself. By default
        none, so that it is what PyTensor's compilation makes of it.
    wrong
        The property, as in `bisect`.
    limits
        Bounds of each evaluation and of each run of passes.
    rewriter
        A rewriter of PyTensor's, as `bisect` names it: a smaller graph must be right without it. So
        it does not become one that another rewriter breaks.
    most
        The most graphs to try, beside those that were tried in calls before.
    tried
        A file for what came of each graph that was tried: if it is there, what it has is not tried
        again. It is removed when nothing smaller is broken.
    found
        Called with each smaller graph that is still broken.
    progress
        Called with a few words on what is being done.

    Raises
    ------
    VerificationError
        If the graph is not broken, or is so in one trial and not in the next.
    PassError
        If the pipeline is malformed.
    ScanoptError
        If ``graph`` is no graph, or its file cannot be loaded; or ``tried`` is the file of another
        reduction.
    """
    sequence = as_passes(passes)
    start = as_graph(loaded_graph(graph))
    wrong, limits = wrong or ValuesDiffer(), limits or Limits()
    pipeline = print_pipeline(sequence) if sequence else "none"
    outcomes = Tried(tried, reduction_key(start, pipeline, wrong, limits, rewriter))
    with TemporaryDirectory(prefix="scanopt-reduce-") as name:
        reducer = _Reducer(
            start,
            sequence,
            wrong,
            limits,
            Path(name),
            rewriter,
            outcomes,
            most,
            found or (lambda _: None),
            progress or (lambda _: None),
        )
        is_minimal = reducer.run()
    if is_minimal:
        outcomes.end()
    return Reduced(
        graph=reducer.graph,
        property=wrong.text,
        pipeline=pipeline,
        why=reducer.why,
        is_failing=reducer.is_failing,
        before=n_nodes(start.fgraph),
        after=n_nodes(reducer.graph.fgraph),
        tried=reducer.tried,
        kept=reducer.kept,
        remembered=reducer.remembered,
        is_minimal=is_minimal,
    )


class _Reducer:
    """One reduction."""

    def __init__(
        self,
        graph: Graph,
        passes: Sequence[Pass],
        wrong: Property,
        limits: Limits,
        directory: Path,
        rewriter: str | None,
        outcomes: Tried,
        most: int | None,
        found: Callable[[Graph], None],
        progress: Callable[[str], None],
    ) -> None:
        self.graph = graph
        self.why = ""
        self.tried = self.kept = self.remembered = 0
        self._wrong = wrong
        self._passes = passes
        self._limits = limits
        self._runner = PassRunner(directory, limits)
        self._rewriter = rewriter
        self._outcomes = outcomes
        self._most = most
        self._found = found
        self._progress = progress
        self._seen: set[str] = set()
        self._kinds: frozenset[str] = frozenset()
        # Whether the graph was found by a call before, and nobody was told of it in this one.
        self._is_untold = False

    @property
    def is_failing(self) -> bool:
        """Whether what is wrong is that a pass fails."""
        return any(kind.startswith(_FAILS) for kind in self._kinds)

    @property
    def _is_spent(self) -> bool:
        return self._most is not None and self.tried - self.remembered >= self._most

    def run(self) -> bool:
        """Reduce the graph to a local minimum; return whether it got there."""
        self._progress("looking at the graph")
        first, second = self._outcome(self.graph), self._outcome(self.graph)
        if first.state is not second.state:
            raise VerificationError(
                f"the property is not stable: the graph was {first.state} in one trial, and "
                f"{second.state} in the next",
                hint="compare with a tolerance, or fix the seed of what is random",
            )
        if first.state is not State.BROKEN:
            raise VerificationError(f"the graph is not broken: {first.why}")
        self.why, self._kinds = first.why, frozenset(first.kinds)
        while sum(self._by(reduction) for reduction in REDUCTIONS):  # each round tries all
            pass
        if not self._passes and self._wrong.mode is not None:
            self._reduce_arguments()
        return not self._is_spent

    def _reduce_arguments(self) -> None:
        """Let the arguments that show what is wrong be a recorded call, and make them smaller."""
        if self._is_spent:
            return
        _, arguments = self._wrong.shown(self.graph, self._limits)
        if not arguments:
            return
        shown = replace(self.graph, recorded=(arguments,))
        self._progress("looking for smaller arguments")
        self._outcome = self._shown  # type: ignore[method-assign]
        if self._outcome(shown).state is State.BROKEN:
            self.graph, self._is_untold = shown, True
            while sum(self._by(reduction) for reduction in OF_ARGUMENTS):
                pass
            self._tell()

    def _by_rewriter(self, graph: Graph, outcome: Outcome) -> Outcome:
        """Return an outcome, which is no fault if it is the same without the rewriter to blame."""
        if self._rewriter is None or outcome.state is not State.BROKEN:
            return outcome
        without = self._wrong.gated(graph, graph, Gate(without=self._rewriter), self._limits)
        if without.state is State.FINE:
            return outcome
        return Outcome(State.FINE, f"without {self._rewriter}, {without.why}")

    def _shown(self, graph: Graph) -> Outcome:
        """Say whether a graph is broken for the arguments that are recorded."""
        try:
            outcome, arguments = self._wrong.shown(graph, self._limits)
        except ScanoptError as error:
            return Outcome(State.UNKNOWN, str(error))
        (recorded,) = graph.recorded
        outcome = self._by_rewriter(graph, outcome)
        is_shown = arguments is not None and all(map(_is_same, arguments, recorded))
        return outcome if is_shown else replace(outcome, state=State.FINE)

    def _by(self, reduction: Reduction) -> bool:
        """Reduce the graph in one way as far as that goes; return whether it went anywhere."""
        start, has_changed = 0, False
        while True:
            candidates: list[Candidate] = list(reduction(self.graph))
            # What failed before a candidate that was taken is tried again in the next round only.
            for position in range(start, len(candidates)):
                if self._takes(candidates[position]):
                    start, has_changed = position, True
                    break
                if self._is_spent:
                    return False
            else:
                return has_changed

    def _takes(self, candidate: Candidate) -> bool:
        """Let a candidate take the graph's place, if it is smaller and broken in the same way."""
        try:
            smaller = candidate()
            if smaller is None or size(smaller) >= size(self.graph):
                return False
            key = graph_key(smaller)
        except Exception:  # what cannot be made is no candidate
            return False
        if key in self._seen:
            return False
        outcome = self._outcomes.known(key)
        if outcome is None and self._is_spent:
            return False
        self._seen.add(key)
        self.tried += 1
        is_known = outcome is not None
        if outcome is None:
            self._tell()
            self._progress(
                f"{n_nodes(self.graph.fgraph)} nodes; {self.kept} of {self.tried} smaller graphs "
                "are broken as well"
            )
            outcome = self._outcome(smaller)
            self._outcomes.note(key, outcome)
        self.remembered += is_known
        if outcome.state is not State.BROKEN or not self._is_alike(outcome):
            return False
        self.graph, self.why = smaller, outcome.why
        self.kept += 1
        self._is_untold = True
        if not is_known:
            self._tell()
        return True

    def _tell(self) -> None:
        """Tell of the graph that was found, of those of calls before only of the last one."""
        if self._is_untold:
            self._is_untold = False
            self._found(self.graph)

    def _is_alike(self, outcome: Outcome) -> bool:
        """Whether a graph is broken in one of the ways in which the first one was."""
        return not self._kinds or not self._kinds.isdisjoint(outcome.kinds)

    def _outcome(self, graph: Graph) -> Outcome:
        """Say whether a graph is broken: by the passes, or by PyTensor if there are none."""
        try:
            if not self._passes:
                if self._wrong.mode is not None:
                    outcome = self._wrong.gated(graph, graph, Gate(), self._limits)
                    return self._by_rewriter(graph, outcome)
                return self._wrong.of(graph, graph, self._limits)
            ran = self._runner.run(graph, self._passes)
            if ran.failing is None:
                return self._wrong.of(ran.last, graph, self._limits)
            if ran.failure is None:
                outcome = self._wrong.of(ran.last, graph, self._limits)
                if outcome.state is State.BROKEN:
                    return outcome
            why = ran.failure or str(ran.left)
            return Outcome(State.BROKEN, why, kinds=(f"{_FAILS}{ran.failing}",))
        except ScanoptError as error:
            return Outcome(State.UNKNOWN, str(error))


def _is_same(one: Any, other: Any) -> bool:
    """Whether two arguments are equal: arrays, or random generators in one state."""
    if isinstance(one, np.random.Generator) and isinstance(other, np.random.Generator):
        return as_text(one) == as_text(other)
    return np.array_equal(one, other)
