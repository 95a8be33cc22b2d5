"""`verify`: do two graphs compute the same values?"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from time import perf_counter

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.affine import ZERO
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.errors import VerificationError
from scanopt_cli.ir.graph import GraphLike, as_graph
from scanopt_cli.verification.child_record import (
    CompiledRun,
    ModeNote,
    Record,
    Rewritten,
    Timed,
    Unevaluated,
)
from scanopt_cli.verification.comparison import Comparison
from scanopt_cli.verification.input_pairing import matched
from scanopt_cli.verification.loops_behind import loops_behind
from scanopt_cli.verification.modes import DEFAULT, compiling_modes
from scanopt_cli.verification.result import (
    CompilationTimes,
    DifferenceKind,
    Verdict,
    Verification,
    VerificationTimes,
)
from scanopt_cli.verification.spawning import Gate, Request, run_child, tables

TIMEOUT = 300.0
"""Seconds of processor time that the child process may use, unless it is said."""


def verify(
    a: GraphLike,
    b: GraphLike,
    *,
    runs: int = 5,
    seed: int = 0,
    modes: str | Sequence[str] = DEFAULT,
    timeout: float = TIMEOUT,
    strict: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Evaluate two graphs on the same arguments and compare their values.

    Recorded calls of ``a`` (of ``b`` if ``a`` has none) come first. Then ``runs`` runs are drawn:
    several steps with the contents of shared variables kept, 0 steps, 1 step, NaNs and
    infinities, 2 steps, and so on with longer loops. Both graphs are evaluated as they are; then
    each of ``modes`` compiles ``b`` as a user would, and its values must be those of ``a`` or those
    of ``a`` compiled by the same mode. Everything runs in one child process, so a crash or an
    endless loop ends the child, not the caller.

    A rewrite of PyTensor's that fails while a mode compiles ``b``, and not while it compiles ``a``,
    is a difference too: PyTensor logs it and leaves it out, so that the function may be slow or
    take much memory.

    ``a`` is the reference: where it gives values, ``b`` must give them too. Where ``a`` raises,
    ``b`` may compute, because a rewrite that removes dead nodes removes their errors. Such a run is
    not compared, and ``reason`` says so.

    Parameters
    ----------
    a, b
        Loaded graphs, paths of their files, FunctionGraphs or ``(inputs, outputs)`` pairs. Inputs
        correspond by position, or by name where positions do not fit; see `matched`.
    runs
        How many runs to draw, at least 1. Fewer than 5 do not cover all settings above.
    seed
        Seed of the drawn arguments; the same seed draws the same arguments.
    modes
        Names of modes, in a list or separated by commas: ``default`` (PyTensor's own), ``vm`` (its
        ``fast_run`` in Python, without fusion), ``cvm`` (in C), ``numba``, ``jax``, or another mode
        of PyTensor's. ``plain`` alone compiles nothing.
    timeout
        Seconds of processor time for everything together; of a graph that only waits, ten times as
        many seconds.
    strict
        Whether it is a difference if only ``a`` raises.
    progress
        Called with a short description of what is being done.

    Raises
    ------
    VerificationError
        If the graphs' signatures do not match, or an option is out of range.
    ScanoptError
        If ``a`` or ``b`` is not a graph, or its file cannot be loaded.
    """
    evaluation = evaluate(
        a, b, runs=runs, seed=seed, modes=modes, timeout=timeout, strict=strict, progress=progress
    )
    return evaluation.verification


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A verification, and whether the child came to its end.

    And how many of PyTensor's rewrites were applied, if they were counted.
    """

    verification: Verification
    rewritten: Rewritten | None
    has_ended: bool

    @property
    def error(self) -> str | None:
        """What compiling raised, if the rewrites were counted."""
        return self.rewritten.error if self.rewritten is not None else None


def evaluate(
    a: GraphLike,
    b: GraphLike,
    *,
    runs: int = 5,
    seed: int = 0,
    modes: str | Sequence[str] = DEFAULT,
    timeout: float = TIMEOUT,
    strict: bool = False,
    progress: Callable[[str], None] | None = None,
    rtol: float | None = None,
    gate: Gate | None = None,
) -> Evaluation:
    """Do what `verify` does, and limit and count PyTensor's rewrites if there is a ``gate``.

    Then the values of ``b``, compiled, must be those of ``a`` as it is. ``rtol`` is how far values
    may be apart, as a fraction of them.
    """
    if runs < 1 or timeout <= 0:
        raise VerificationError("runs must be at least 1 and timeout positive")
    started = perf_counter()
    compiling = compiling_modes(modes)
    pair = matched(as_graph(a), as_graph(b))
    request = Request(
        graphs=tables(pair.a, pair.b),
        names=pair.output_names,
        recorded=pair.a.recorded or pair.b.recorded,
        contents={**pair.b.values, **pair.a.values},
        runs=runs,
        seed=seed,
        modes=compiling,
        timeout=timeout,
        rtol=rtol,
        gate=gate,
    )
    planned = len(request.recorded) + runs
    comparable = {i for i, output in enumerate(pair.a.outputs) if not _is_always_empty(output)}
    record = run_child(request, progress, doing="verifying")
    result = _verification(record, planned, compiling, comparable, strict=strict)
    found = result.differences
    if any(difference.output is not None for difference in found):
        loops = loops_behind(pair.a.fgraph, pair.b.fgraph)
        found = tuple(
            one if one.output is None else replace(one, loops=loops[one.output]) for one in found
        )
    result = replace(
        result,
        differences=found,
        remarks=(*pair.remarks, *result.remarks),
        times=_times(record, perf_counter() - started),
    )
    return Evaluation(result, next(iter(record.of(Rewritten)), None), record.failure is None)


def _times(record: Record, seconds: float) -> VerificationTimes:
    """Return how long all took, and of that each mode for each graph."""
    found: dict[tuple[str, str], CompilationTimes] = {}
    for one in record.of(Timed):
        key = one.graph, one.mode
        known = found.get(key, CompilationTimes(graph=one.graph, mode=one.mode))
        if not one.is_call:
            more = replace(known, compiling=known.compiling + one.seconds)
        elif not known.calls:
            more = replace(known, first_call=one.seconds, calls=1)
        else:
            later = known.later_calls + one.seconds
            more = replace(known, later_calls=later, calls=known.calls + 1)
        found[key] = more
    return VerificationTimes(seconds=seconds, compilations=tuple(found.values()))


def _is_always_empty(output: Variable) -> bool:
    lengths = Lengths()
    axes = range(getattr(output.type, "ndim", 0))
    return any(lengths.length_of(output, axis) == ZERO for axis in axes)


def _verification(
    record: Record,
    planned: int,
    modes: tuple[str, ...],
    comparable: Set[int],
    *,
    strict: bool,
) -> Verification:
    """Summarise the child's record; ``comparable`` are the outputs that need not be empty."""
    runs = [
        entry if strict else _without_lost_error(entry)
        for entry in record.entries
        if isinstance(entry, Comparison | Unevaluated)
    ]
    compared = [run for run in runs if isinstance(run, Comparison)]
    plain = (found for run in compared for found in run.differences)
    compiled = (found for run in record.of(CompiledRun) for found in run.differences)
    differences = (*plain, *compiled)
    agreeing = [run for run in compared if not run.differences]
    unevaluated = (run.reason for run in runs if isinstance(run, Unevaluated))
    reason = record.failure or next(unevaluated, None)
    seen = {place for run in agreeing for place in run.compared}
    faint = {place for run in agreeing for place in run.faint} - seen
    unseen = comparable - seen - faint
    if differences:
        verdict = Verdict.DIFFERS
    elif record.failure is not None or not agreeing:
        verdict = Verdict.COULD_NOT_RUN
    elif not seen and (faint or unseen):
        verdict = Verdict.COULD_NOT_RUN
        why = "no run gave a finite number to compare"
        if faint:
            why = "all numbers are so small that their differences may be rounding errors"
        reason = why if reason is None else f"{why}; {reason}"
    elif all(run.identical for run in agreeing):
        verdict = Verdict.IDENTICAL
    else:
        verdict = Verdict.AGREES
    return Verification(
        verdict=verdict,
        runs=len(agreeing),
        runs_tried=planned,
        differences=differences,
        reason=reason,
        modes=modes,
        notes=tuple(dict.fromkeys(note.text for note in record.of(ModeNote))),
        remarks=(
            *(
                f"output {place} holds nothing larger than rounding errors, so it was not compared"
                for place in sorted(faint)
            ),
            *(
                f"output {place} was empty, NaN or infinite in every run, so no number was compared"
                for place in sorted(unseen if agreeing else ())
            ),
        ),
    )


def _without_lost_error(run: Comparison | Unevaluated) -> Comparison | Unevaluated:
    """Return ``run``, as not evaluated if only the first graph raises in it."""
    match run:
        case Comparison(differences=(lost,)) if lost.kind is DifferenceKind.ONLY_A_RAISES:
            text = f"in the rest the first graph raises {lost.a}, and the second computes"
            return Unevaluated(text)
    return run
