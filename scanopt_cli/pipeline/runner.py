"""Runs passes, on bodies first, to a fixpoint, with remarks, timings and checks.

Four repetitions are nested, from the outside to the inside:

* `optimize` runs the pipeline and `compile-safe` in turn, until a graph recurs (`optimizing`);
* a phase of the pipeline runs its passes in rounds, until a round changes nothing (here);
* a pass may run several times on one graph, as its ``sweeps`` say (`driver`);
* a rewrite of a whole graph, a `Fixpoint`, is repeated until its form recurs (`driver`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.environment import STRICT
from scanopt_cli.errors import PassError, PassFailedError
from scanopt_cli.ir.fast_graphs import rewritten_fast
from scanopt_cli.ir.graph import copy_nodes, replace_outputs
from scanopt_cli.ir.inner_graphs import core_op, is_own_graph, walk
from scanopt_cli.ir.integrity import check_integrity
from scanopt_cli.ir.remembered_order import remembered_order
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.driver import PassDriver, PipelineMemory, RewriteBudget, smallest
from scanopt_cli.presentation import Presented
from scanopt_cli.remarks import Code, Remark, RemarkKind

# A pipeline runs to a fixpoint. Most graphs need a few rounds; a change to one loop may enable the
# next, which may take one more round for each loop, or each OpFromGraph. Still more rounds mean
# that passes undo each other, so after a few rounds the runner looks for a graph that it has seen
# before.
_ROUNDS = 10
_ROUNDS_BEFORE_CYCLES = 4


@dataclass(frozen=True, slots=True, repr=False)
class PassRun(Presented):
    """What one pass of a pipeline did, over all rounds.

    ``changed`` says whether a graph came out of the pass that computes otherwise than the one that
    went in, or has more or fewer nodes. ``seconds`` is wall time; ``rewrites`` counts what the pass
    rewrote, in each distinct body once.
    """

    name: str
    changed: bool
    seconds: float
    rewrites: int
    remarks: tuple[Remark, ...]

    def joined(self, later: PassRun) -> PassRun:
        """Return the record of this run and a later one of the same pass."""
        return PassRun(
            name=self.name,
            changed=self.changed or later.changed,
            seconds=self.seconds + later.seconds,
            rewrites=self.rewrites + later.rewrites,
            remarks=_distinct((*self.remarks, *later.remarks)),
        )


type Watcher = Callable[[Pass, FunctionGraph, Sequence[Remark], float], None]
"""Called after each pass that changed something, with the graph as it is then.

And with what the pass says of this one run of it, and how many seconds that took.
"""


def run_pipeline(
    fgraph: FunctionGraph,
    passes: Sequence[Pass],
    *,
    limit: int | None = None,
    rounds: int | None = None,
    strict: bool | None = None,
    watch: Watcher | None = None,
) -> tuple[PassRun, ...]:
    """Run ``passes`` on ``fgraph`` in place, once; see `PipelineRunner`."""
    return PipelineRunner(passes, limit=limit, strict=strict).run(
        fgraph, rounds=rounds, watch=watch
    )


class PipelineRunner:
    """Runs a pipeline on graphs, in place, each time to a fixpoint.

    A pass that starts a phase waits, with those behind it, for the fixpoint of those before it.
    What a run learns about bodies is kept for the next one.

    Parameters
    ----------
    passes
        The pipeline.
    limit
        The most rewrites, in all runs together.
    strict
        Whether an error of a pass is raised. Else the pass leaves what it works on as it is, with a
        remark, if it is not added by another package. By default, the environment variable
        SCANOPT_STRICT decides.
    memory
        What is learned about graphs, if others are to share it.

    Raises
    ------
    PassError
        If a pass that trims buffers comes before one that does not take trimmed loops, or if a pass
        undoes another one.
    """

    def __init__(
        self,
        passes: Sequence[Pass],
        *,
        limit: int | None = None,
        strict: bool | None = None,
        memory: PipelineMemory | None = None,
    ) -> None:
        _check_order(passes)
        budget = RewriteBudget(limit)
        strict = bool(os.environ.get(STRICT)) if strict is None else strict
        self._memory = memory or PipelineMemory()
        self._phases = [
            [PassDriver(item, budget, strict=strict, memory=self._memory) for item in phase]
            for phase in _phases(passes)
        ]

    def run(
        self,
        fgraph: FunctionGraph,
        *,
        rounds: int | None = None,
        watch: Watcher | None = None,
        begin: Callable[[Pass], None] | None = None,
    ) -> tuple[PassRun, ...]:
        """Run the passes on ``fgraph``, in order; those of a phase at most ``rounds`` times.

        ``begin`` is called before each run of a pass, and ``watch`` after each that changed it.

        If passes undo each other, the result is the graph with the fewest nodes of those that they
        lead to again and again.

        Raises
        ------
        PassError
            If a pass breaks the graph or its signature, or if one of another package raises an
            error.
        """
        signature = _signature(fgraph)

        def check(item: Pass) -> None:
            try:
                check_integrity(fgraph)
            except Exception as error:
                raise PassFailedError(f"the pass {item.name} broke the graph ({error})") from error
            if _signature(fgraph) != signature:
                raise PassFailedError(
                    f"the pass {item.name} changed the graph's inputs or the types of outputs"
                )

        runs: list[PassRun] = []
        # What is made here was written by no line of the program. To note the lines that make it
        # takes a twelfth of the time.
        with (
            rewritten_fast(fgraph),
            remembered_order(fgraph),
            config.change_flags(traceback__limit=0),
        ):
            for drivers in self._phases:
                for driver in drivers:
                    driver.begin()
                runs += _run_phase(
                    fgraph, drivers, rounds, check, watch, begin, self._memory.form_of
                )
        return tuple(runs)


def _phases(passes: Sequence[Pass]) -> list[list[Pass]]:
    """Return the passes that run to a fixpoint together, in order."""
    phases: list[list[Pass]] = [[]]
    for item in passes:
        if item.starts_phase:
            phases.append([])
        phases[-1].append(item)
    return phases


def _run_phase(
    fgraph: FunctionGraph,
    drivers: Sequence[PassDriver],
    rounds: int | None,
    check: Callable[[Pass], None],
    watch: Watcher | None,
    begin: Callable[[Pass], None] | None,
    form_of: Callable[[FunctionGraph], str],
) -> list[PassRun]:
    """Run passes in order until none changes anything, and return what each did."""
    seconds, changed = [0.0] * len(drivers), [False] * len(drivers)
    state = form_of(fgraph)
    holders = (is_loop(node) or is_own_graph(core_op(node.op)) for node in walk(fgraph))
    most = _ROUNDS + sum(holders)
    forms: dict[str, FunctionGraph] = {}
    for number in range(most if rounds is None else rounds):
        busy: list[PassDriver] = []
        for position, driver in enumerate(drivers):
            if state in driver.idle:
                continue
            if begin is not None:
                begin(driver.item)
            n_remarks = len(driver.remarks)
            started = perf_counter()
            is_rewritten = driver.run(fgraph)
            spent = perf_counter() - started
            seconds[position] += spent
            before = state
            if is_rewritten:
                check(driver.item)
                state = form_of(fgraph)
            if state == before:
                driver.idle.add(state)
                continue
            changed[position] = True
            busy.append(driver)
            if watch is not None:
                watch(driver.item, fgraph, _distinct(driver.remarks[n_remarks:]), spent)
        if not busy:
            break
        if rounds is None and number >= _ROUNDS_BEFORE_CYCLES:
            recurs = state in forms
            if not recurs:
                forms[state] = copy_nodes(fgraph)
            if recurs or number + 1 == most:
                _stop(busy, number + 1)
                first_of_cycle = state if recurs else next(iter(forms))
                replace_outputs(fgraph, forms[smallest(forms, first_of_cycle)])
                break
    return [
        PassRun(
            name=driver.item.name,
            changed=has_changed,
            seconds=spent_in_all,
            rewrites=driver.rewrites,
            remarks=_distinct(driver.remarks),
        )
        for driver, spent_in_all, has_changed in zip(drivers, seconds, changed, strict=True)
    ]


def _stop(busy: Sequence[PassDriver], rounds: int) -> None:
    """Remark which passes would keep rewriting each other's results; the graph is correct."""
    last = busy[-1]
    last.remarks.append(
        Remark(
            pass_name=last.item.name,
            code=Code.PASSES_CYCLE,
            kind=RemarkKind.MISSED,
            scan="graph",
            details={
                "rounds": rounds,
                "passes": tuple(dict.fromkeys(driver.item.name for driver in busy)),
            },
        )
    )


def _distinct(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """Return ``remarks`` with equal ones merged; rewrites are counted."""
    merged: dict[object, Remark] = {}
    for remark in remarks:
        key = remark.subject, remark.slots
        first = merged.get(key)
        if first is None:
            merged[key] = remark
        elif remark.kind is RemarkKind.PASSED:
            merged[key] = replace(first, count=first.count + remark.count)
    return tuple(merged.values())


def _check_order(passes: Sequence[Pass]) -> None:
    trimming: Pass | None = None
    names = {item.name for item in passes}
    for item in passes:
        if item.undoes in names:
            raise PassError(
                f"{item.name} undoes {item.undoes}, and a pipeline runs until nothing changes",
                where="pipeline",
                hint="run one after the other",
            )
        if trimming is not None and not getattr(item, "accepts_trimmed", True):
            raise PassError(
                f"{item.name} cannot run after {trimming.name}, which leaves trimmed loops",
                where="pipeline",
                hint=f"move {trimming.name} to the end",
            )
        if item.trims:
            trimming = item


def _signature(fgraph: FunctionGraph) -> list[object]:
    """Return what a pass must keep; of outputs, it may infer static lengths."""
    types = [variable.type for variable in fgraph.outputs]
    return [
        *((variable.type, variable.name) for variable in fgraph.inputs),
        *((type(one), getattr(one, "dtype", None), getattr(one, "ndim", None)) for one in types),
    ]
