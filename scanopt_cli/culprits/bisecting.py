"""`bisect`: which rewrite gives a graph a property, as LLVM's ``-opt-bisect-limit`` finds it.

The graph after each pass that changed it is kept, and the first of these that has the property is
found by bisection; then the first rewrite of that pass, which takes a limit. If only compiled
graphs have the property, PyTensor's rewrites are counted, and limited, in the same way: in the
process that compiles the graph, or in those of a command. All passes and graphs run in child
processes. What is broken in another way than the graph at the end is neither broken nor right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from scanopt_cli.culprits.culprit import Bisection, Culprit, Maker
from scanopt_cli.culprits.pass_worker import PassResult
from scanopt_cli.culprits.properties import Limits, Outcome, Property, State, ValuesDiffer
from scanopt_cli.culprits.running import PassRunner
from scanopt_cli.culprits.searching import Found, first_with
from scanopt_cli.errors import LoadError, VerificationError
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph, loaded_graph
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.grammar import as_passes, parse, print_pipeline
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.payload import decode
from scanopt_cli.text import plural
from scanopt_cli.verification.result import VerificationTimes
from scanopt_cli.verification.spawning import Gate

_COMPILE_SAFE = "compile-safe"


def bisect(
    graph: GraphLike,
    passes: str | Sequence[Pass] = "default",
    *,
    wrong: Property | None = None,
    limits: Limits | None = None,
    progress: Callable[[str], None] | None = None,
) -> Bisection:
    """Find the first rewrite after which ``graph`` has a property, such as wrong values.

    If the graph itself has the property once PyTensor has compiled it, or the command has, the
    rewrite is one of PyTensor's. Else it is one of ``passes``, or of `compile-safe` after them; and
    of PyTensor's as well, if the graph after it has the property only once it is compiled. A pass
    that raises an error, ends its process, or takes more time or memory than ``limits`` allow, is
    found as well.

    About ``log2(n)`` graphs are looked at, of ``n`` rewrites. Each end is tried twice. Graphs that
    cannot be evaluated, or are broken in another way than after all rewrites, leave it open whether
    the rewrite came before: some beside them are looked at, and if the rewrite is among them, the
    result says which may be to blame.

    Parameters
    ----------
    graph
        A loaded graph, the path of its file, a FunctionGraph or an ``(inputs, outputs)`` pair.
    passes
        A pipeline as text, a preset, or passes; ``none`` for PyTensor's rewrites alone.
    wrong
        The property; by default, that values differ from those of the graph as it is, compiled by
        PyTensor's default mode.
    limits
        Bounds of each evaluation and of each run of passes.
    progress
        Called with a few words on what is being done.

    Raises
    ------
    VerificationError
        If the graph itself has the property without any rewrite, cannot be evaluated, or has the
        property in one trial and not in the next, or with other rewrites.
    PassError
        If the pipeline is malformed.
    ScanoptError
        If ``graph`` is no graph, or its file cannot be loaded.
    """
    started = perf_counter()
    sequence = as_passes(passes)
    with TemporaryDirectory(prefix="scanopt-bisect-") as name:
        search = _Search(
            as_graph(loaded_graph(graph)),
            wrong or ValuesDiffer(),
            limits or Limits(),
            Path(name),
            progress or (lambda _: None),
        )
        culprits = search.run(sequence)
    return Bisection(
        property=search.wrong.text,
        pipeline=print_pipeline(sequence),
        culprits=culprits,
        probes=search.probes,
        seconds=perf_counter() - started,
        times=VerificationTimes.joined(search.times) if search.times else None,
    )


class _Search:
    """One bisection."""

    def __init__(
        self,
        original: Graph,
        wrong: Property,
        limits: Limits,
        directory: Path,
        progress: Callable[[str], None],
    ) -> None:
        self.original = original
        self.wrong = wrong
        self.probes = 0
        self.times: list[VerificationTimes] = []
        self._limits = limits
        self._runner = PassRunner(directory, limits)
        self._progress = progress

    def run(self, passes: Sequence[Pass]) -> tuple[Culprit, ...]:
        """Return the culprits: none, one of a pass, one of PyTensor's, or one of each."""
        start = self._twice(lambda: self._of(self.original), "the graph without any pass")
        is_broken = start.state is State.BROKEN
        if self.wrong.mode is not None or (self.wrong.is_gated and is_broken):
            alone = self._twice(
                lambda: self._gated(self.original, None), "the graph that PyTensor compiles"
            )
            if self._is_compiled(alone):
                return (self._of_pytensor_alone(alone),)
        if start.state is State.UNKNOWN:
            hint = "look for an error of compilation" if "compile" in start.why else None
            raise VerificationError(f"the graph cannot be evaluated: {start.why}", hint=hint)
        if is_broken:
            nothing = ", and PyTensor rewrites nothing in the command" * self._is_of_command
            raise self._broken_before(f"{start.why}{nothing}")
        if not passes:
            return ()
        found = self._of_passes(passes)
        if found is None:
            return ()
        is_gated = found.mode is not None if self.wrong.mode is not None else self.wrong.is_gated
        if found.after is not None and is_gated:
            compiled = self._gated(found.after, None)
            rewrite = (
                self._of_pytensor(found.after, compiled) if self._is_compiled(compiled) else None
            )
            return (found,) if rewrite is None else (found, rewrite)
        return (found,)

    @property
    def _is_of_command(self) -> bool:
        """Whether a command compiles the graphs, if anything does, and not a mode."""
        return self.wrong.is_gated and self.wrong.mode is None

    def _is_compiled(self, outcome: Outcome) -> bool:
        """Whether a graph is broken, and may be so since it was compiled."""
        is_compiled = outcome.n_rewrites > 0 if self._is_of_command else outcome.mode is not None
        return outcome.state is State.BROKEN and is_compiled

    def _of_pytensor_alone(self, alone: Outcome) -> Culprit:
        found = self._of_pytensor(self.original, alone)
        if found is None:
            rewrites = plural(alone.n_rewrites, "rewrite")
            raise self._broken_before(
                f"{alone.why}, as without PyTensor's {rewrites} in the command"
            )
        return found

    def _broken_before(self, why: str) -> VerificationError:
        return VerificationError(
            f"the graph has the property before any rewrite: {why}",
            hint=self.wrong.hint or "nothing is to be found between it and itself",
        )

    # Of passes

    def _of_passes(self, passes: Sequence[Pass]) -> Culprit | None:
        """Run the pipeline, and return the rewrite of a pass that is to blame, if there is one."""
        self._progress("running the passes")
        ran = self._runner.run(self.original, passes)
        names = ran.changed
        last = self._twice(lambda: self._of(ran.last), "the graph after all passes")
        if last.state is not State.BROKEN:
            if ran.failure is None and ran.left is not None:
                self._progress(f"running the passes up to an error: {ran.left}")
                ran = self._runner.run(self.original, passes, strict=True)
            if ran.failure is None:
                return None
            return self._failing(ran.last, _named(ran.begun, passes), ran.failure)
        found = self._first(
            len(names),
            last,
            lambda i: self._of(ran.after(i)),
            lambda i: f"the graph after {names[i - 1]}",
        )
        whole = Culprit(
            maker=Maker.SCANOPT,
            name=names[found.first - 1],
            number=None,
            of=0,
            why=found.seen[found.first].why,
            mode=found.seen[found.first].mode,
            among=tuple(dict.fromkeys(names[found.last_without : found.first])),
            before=ran.after(found.last_without),
            after=ran.after(found.first),
            **_what_is_open(found) | {"since": None},
        )
        if not found.is_certain:
            return whole
        # One pass may run with several sets of options.
        within = (self._within(whole, item, last) for item in _named(whole.name, passes))
        return next((culprit for culprit in within if culprit is not None), whole)

    def _within(self, whole: Culprit, item: Pass, last: Outcome) -> Culprit | None:
        """Return which rewrite of one pass is to blame; ``None`` if one run of it shows nothing.

        ``last`` was seen after all passes.
        What it does may depend on what it learned in runs before.
        """
        before = whole.before
        assert before is not None
        results: dict[int | None, PassResult | None] = {}

        def limited(limit: int | None) -> PassResult | None:
            if limit not in results:
                results[limit] = self._runner.once(before, item, limit)[0]
            return results[limit]

        def probe(limit: int) -> Outcome:
            made = limited(limit)
            if made is None:
                return Outcome(State.UNKNOWN, "the pass failed")
            return self._of(decode(made.tables, item.name))

        everything = limited(None)
        total = 0 if everything is None else everything.rewrites
        end = probe(total) if total else Outcome(State.FINE)
        if not _is_alike(end, last):
            return None
        one = self._first(total, end, probe, lambda k: f"rewrite {k} of {item.name}")
        made, previous = limited(one.first), limited(one.last_without)
        assert made is not None
        known = previous.remarks if previous is not None else ()
        return replace(
            whole,
            number=one.first,
            of=total,
            why=one.seen[one.first].why,
            mode=one.seen[one.first].mode,
            remarks=tuple(remark for remark in made.remarks if remark not in known),
            **_what_is_open(one),
            before=before if previous is None else decode(previous.tables, item.name),
            after=decode(made.tables, item.name),
        )

    def _failing(self, before: Graph, items: Sequence[Pass], failure: str) -> Culprit:
        """Return which rewrite of a pass raises an error, or ends its process."""

        def run(item: Pass, limit: int | None) -> tuple[PassResult | None, str | None]:
            return self._runner.once(before, item, limit, strict=True)

        item = next((one for one in items if run(one, None)[0] is None), None)
        if item is None:
            raise VerificationError(f"the passes could not be run: {failure}")

        def probe(limit: int) -> Outcome:
            made, why = run(item, limit)
            return Outcome(State.FINE if made is not None else State.BROKEN, why or "")

        culprit = Culprit(
            maker=Maker.SCANOPT,
            name=item.name,
            number=None,
            of=0,
            why=failure,
            failing=print_pipeline([item]),
            before=before,
        )
        # The pass may not say how many rewrites it would do.
        most, end = 1, probe(1)
        while end.state is State.FINE and most < 1 << 16:
            most *= 2
            end = probe(most)
        if end.state is State.FINE:
            return culprit
        one = self._first(most, end, probe, lambda k: f"rewrite {k} of {item.name}")
        return replace(
            culprit,
            number=one.first,
            why=one.seen[one.first].why or failure,
            **_what_is_open(one),
        )

    # Of PyTensor

    def _of_pytensor(self, graph: Graph, end: Outcome) -> Culprit | None:
        """Return which of PyTensor's rewrites is to blame for what the compiled graph shows.

        It is none of them if the same shows without any: then it is the mode's linker, and of a
        command nothing that can be named.
        """
        self._progress("looking at the graph without PyTensor's rewrites")
        start = self._gated(graph, 0)
        if _is_alike(start, end):
            found = Found(0, -1, {0: start})
            if self._is_of_command:
                return None
        else:
            found = self._first(
                end.n_rewrites,
                end,
                lambda k: self._gated(graph, k),
                lambda k: f"rewrite {k} of PyTensor's {end.n_rewrites}",
                start,
            )
        # Once more, to keep the graphs around it, or around all that may be to blame.
        directory = self._runner.new_directory()
        again = self._gated(graph, found.first, directory)
        shown = found.seen[found.first]
        last = (again.last or shown.last) if found.first else None
        around = directory
        if not found.is_certain and last is not None:
            begins = self._runner.new_directory()
            first = self._gated(graph, found.last_without + 1, begins).last
            if first is not None and first.function == last.function:
                around = begins
        return Culprit(
            maker=Maker.PYTENSOR,
            name=last.rewriter if last is not None else "linker",
            number=found.first or None,
            of=end.n_rewrites,
            why=shown.why,
            mode=shown.mode,
            within=last.within if last is not None else (),
            position=last.position if last is not None else None,
            place=last.place if last is not None else None,
            node=last.node if last is not None else None,
            function=last.function if last is not None else None,
            before=_kept(around / "before.pkl"),
            after=_kept(directory / "after.pkl"),
            **_what_is_open(found),
        )

    # Of anything

    def _of(self, graph: Graph) -> Outcome:
        return self._looked_at(self.wrong.of(graph, self.original, self._limits))

    def _gated(self, graph: Graph, most: int | None, directory: Path | None = None) -> Outcome:
        gate = Gate(most, directory)
        return self._looked_at(self.wrong.gated(graph, self.original, gate, self._limits))

    def _looked_at(self, outcome: Outcome) -> Outcome:
        self.probes += 1
        if outcome.times is not None:
            self.times.append(outcome.times)
        return outcome

    def _twice(self, probe: Callable[[], Outcome], what: str) -> Outcome:
        """Return whether one end has the property, which it must have twice or not at all."""
        self._progress(f"looking at {what}")
        first, second = probe(), probe()
        if first.state is not second.state:
            raise VerificationError(
                f"the property is not stable: {what} was {first.state} in one trial, and "
                f"{second.state} in the next",
                hint="compare with a tolerance, or fix the seed of what is random",
            )
        if first.n_rewrites != second.n_rewrites:
            raise VerificationError(
                f"the rewrites are not the same each time: PyTensor applied {first.n_rewrites} in "
                f"one trial, and {second.n_rewrites} in the next",
                hint="set PYTHONHASHSEED=0, and let one process compile after the other",
            )
        return first

    def _first(
        self,
        end: int,
        outcome: Outcome,
        probe: Callable[[int], Outcome],
        name: Callable[[int], str],
        start: Outcome | None = None,
    ) -> Found[Outcome]:
        """Return the first position up to ``end`` that has the property, which 0 has not.

        ``start`` is what was seen at 0, if that is open.
        """

        def has_it(seen: Outcome) -> bool | None:
            return False if seen.state is State.FINE else _is_alike(seen, outcome) or None

        def look(position: int, left: int) -> Outcome:
            self._progress(f"looking at {name(position)}; {left - 1} left")
            return probe(position)

        return first_with({0: start or Outcome(State.FINE), end: outcome}, has_it, look)


def _is_alike(seen: Outcome, end: Outcome) -> bool:
    """Whether a graph is broken in one of the ways in which the one at the end is."""
    is_other = seen.kinds and end.kinds and set(seen.kinds).isdisjoint(end.kinds)
    return seen.state is State.BROKEN and not is_other


def _what_is_open(found: Found[Outcome]) -> dict[str, Any]:
    """Return which of the positions before the first one may be it as well, and why."""
    between = (found.seen.get(k) for k in range(found.first - 1, found.last_without, -1))
    why = next((seen.why for seen in between if seen is not None), "")
    since = found.last_without + 1 if found.first else None
    return {"is_certain": found.is_certain, "since": since, "open": why}


def _kept(path: Path) -> Graph | None:
    """Return a graph that a child kept, read as a file of a stranger's is."""
    with suppress(LoadError, OSError):
        return load(path)
    return None


def _named(name: str, passes: Sequence[Pass]) -> list[Pass]:
    """Return the different passes of a name, of a pipeline and of what `optimize` ends with."""
    every = (*passes, *parse(_COMPILE_SAFE))
    return list(dict.fromkeys(item for item in every if item.name == name))
