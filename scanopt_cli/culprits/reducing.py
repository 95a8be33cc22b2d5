"""`reduce`: the smallest graph that is still broken (delta debugging, greedy).

After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), and LLVM's
``llvm-reduce``: candidates are tried in a fixed order, and the first that is smaller and still
broken takes the graph's place, until none is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from scanopt_cli.culprits.properties import Limits, Outcome, Property, State, ValuesDiffer
from scanopt_cli.culprits.reductions import REDUCTIONS, Candidate, Reduction, size
from scanopt_cli.culprits.running import PassRunner
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import ScanoptError, VerificationError
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph, loaded_graph
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.driver import n_nodes
from scanopt_cli.pipeline.grammar import as_passes, print_pipeline
from scanopt_cli.presentation import Presented
from scanopt_cli.verification.spawning import Gate


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
    before, after
        How many nodes the graph had, and has, bodies included.
    tried, kept
        How many smaller graphs were tried, and how many of them were still broken.
    is_minimal
        Whether no smaller graph that was tried is broken; false if a bound of time was met.
    """

    graph: Graph = field(metadata={"as_json": False})
    property: str
    pipeline: str
    why: str
    before: int
    after: int
    tried: int
    kept: int
    is_minimal: bool


def reduce(
    graph: GraphLike,
    passes: str | Sequence[Pass] = "none",
    *,
    wrong: Property | None = None,
    limits: Limits | None = None,
    most: int | None = None,
    found: Callable[[Graph], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Reduced:
    """Make ``graph`` smaller while it stays broken, until nothing more can be taken away.

    Outputs go, or operands become outputs; inputs, constants and operands take the place of nodes,
    in bodies too; one step takes the place of a loop, or the loop gets few steps; slots that
    nothing reads, equal nodes and OpFromGraphs go; recorded calls go. The result is the same each
    time, if the property is. What is found meanwhile can be reduced further by another call.

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
    most
        The most graphs to try.
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
        If ``graph`` is no graph, or its file cannot be loaded.
    """
    sequence = as_passes(passes)
    start = as_graph(loaded_graph(graph))
    with TemporaryDirectory(prefix="scanopt-reduce-") as name:
        reducer = _Reducer(
            start,
            sequence,
            wrong or ValuesDiffer(),
            limits or Limits(),
            Path(name),
            most,
            found or (lambda _: None),
            progress or (lambda _: None),
        )
        reducer.run()
    return Reduced(
        graph=reducer.graph,
        property=reducer.wrong.text,
        pipeline=print_pipeline(sequence) if sequence else "none",
        why=reducer.why,
        before=n_nodes(start.fgraph),
        after=n_nodes(reducer.graph.fgraph),
        tried=reducer.tried,
        kept=reducer.kept,
        is_minimal=most is None or reducer.tried < most,
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
        most: int | None,
        found: Callable[[Graph], None],
        progress: Callable[[str], None],
    ) -> None:
        self.graph = graph
        self.wrong = wrong
        self.why = ""
        self.tried = self.kept = 0
        self._passes = passes
        self._limits = limits
        self._runner = PassRunner(directory, limits)
        self._most = most
        self._found = found
        self._progress = progress
        self._known: set[object] = set()

    def run(self) -> None:
        """Reduce the graph to a local minimum."""
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
        self.why = first.why
        while sum(self._by(reduction) for reduction in REDUCTIONS):  # each round tries all
            pass

    def _by(self, reduction: Reduction) -> bool:
        """Reduce the graph in one way as far as that goes; return whether it went anywhere."""
        start, has_changed = 0, False
        while True:
            candidates: list[Candidate] = list(reduction(self.graph))
            # What failed before a candidate that was taken is tried again in the next round only.
            for position in range(start, len(candidates)):
                if self._most is not None and self.tried >= self._most:
                    return False
                if self._takes(candidates[position]):
                    start, has_changed = position, True
                    break
            else:
                return has_changed

    def _takes(self, candidate: Candidate) -> bool:
        """Let a candidate take the graph's place, if it is smaller and still broken."""
        try:
            smaller = candidate()
            if smaller is None or size(smaller) >= size(self.graph):
                return False
            key = digest(smaller), size(smaller), pickle.dumps(smaller.recorded)
        except Exception:  # what cannot be made is no candidate
            return False
        if key in self._known:
            return False
        self._known.add(key)
        self.tried += 1
        self._progress(
            f"{n_nodes(self.graph.fgraph)} nodes; {self.kept} of {self.tried} smaller graphs are "
            "broken as well"
        )
        outcome = self._outcome(smaller)
        if outcome.state is not State.BROKEN:
            return False
        self.graph, self.why = smaller, outcome.why
        self.kept += 1
        self._found(smaller)
        return True

    def _outcome(self, graph: Graph) -> Outcome:
        """Say whether a graph is broken: by the passes, or by PyTensor if there are none."""
        try:
            if not self._passes:
                if self.wrong.mode is not None:
                    return self.wrong.gated(graph, graph, Gate(), self._limits)
                return self.wrong.of(graph, graph, self._limits)
            ran = self._runner.run(graph, self._passes)
            if ran.failure is not None:
                return Outcome(State.BROKEN, ran.failure)
            return self.wrong.of(ran.last, graph, self._limits)
        except ScanoptError as error:
            return Outcome(State.UNKNOWN, str(error))
