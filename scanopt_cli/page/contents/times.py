"""What took how long: loading, passes, verification and what that compiled, by the clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from scanopt_cli.page.page import Section, Spent
from scanopt_cli.pipeline.optimizing import OptimizeResult
from scanopt_cli.reports.document import Block, Column, Line, Span, Style, Table
from scanopt_cli.reports.optimize_report import timings
from scanopt_cli.reports.times_report import times_report
from scanopt_cli.text import time_text
from scanopt_cli.verification.modes import PLAIN
from scanopt_cli.verification.result import VerificationTimes


def times_of_optimizing(result: OptimizeResult, seconds: Mapping[str, float]) -> tuple[Spent, ...]:
    """Return what took how long.

    ``seconds`` has how long ``loading`` took, ``optimizing`` in all, and ``checking``, as far as
    that was measured.
    """
    found = [Spent("loading", seconds["loading"])] if "loading" in seconds else []
    found.append(Spent("passes", sum(run.seconds for run in result.passes)))
    times = None if result.verification is None else result.verification.times
    known = found[-1].seconds
    if times is not None:
        found.append(spent_verifying(times))
        known += times.seconds
    if "optimizing" in seconds:
        found.append(Spent("copies and counts", max(seconds["optimizing"] - known, 0.0)))
    if "checking" in seconds:
        found.append(Spent("what is left to do", seconds["checking"]))
    return tuple(found)


def spent_verifying(times: VerificationTimes, what: str = "verification") -> Spent:
    """Return how long a verification took, and of that compilations, by mode, and calls.

    The first call of what was compiled counts as compilation: Numba and JAX compile then. The rest
    is the start of a process, drawing arguments and comparing values.
    """
    modes = dict.fromkeys(one.mode for one in times.compilations)
    compiling = [
        Spent(
            "compiling as it is" if mode == PLAIN else f"compiling by {mode}",
            sum(o.compiling + o.first_call for o in times.compilations if o.mode == mode),
        )
        for mode in modes
    ]
    rest = max(times.seconds - times.compiling - times.running, 0.0)
    return Spent(
        what,
        times.seconds,
        (*compiling, Spent("running", times.running), Spent("the rest", rest)),
    )


def times_section(
    times: Sequence[Spent], result: OptimizeResult | None, compiled: VerificationTimes | None
) -> Section:
    """Return all times: in a table, of each pass of a ``result``, and of each compilation."""
    return Section(title="Times", blocks=list(_blocks(times, result, compiled)), is_open=False)


def _blocks(
    times: Sequence[Spent], result: OptimizeResult | None, compiled: VerificationTimes | None
) -> Iterator[Block]:
    yield Table((Column("work"), Column("wall time", is_number=True)), list(_rows(times)))
    if result is not None and result.passes:
        yield timings(result.passes)
    if compiled is not None:
        yield from times_report(compiled)


def _rows(times: Iterable[Spent]) -> Iterator[Sequence[Line]]:
    for one in times:
        yield one.what, time_text(one.seconds)
        for part in one.parts:
            shown = (f"of that {part.what}", time_text(part.seconds))
            yield tuple(Span(text, Style.FAINT) for text in shown)


def added(several: Iterable[Sequence[Spent]]) -> tuple[Spent, ...]:
    """Return the times of several graphs together."""
    found: dict[str, list[Spent]] = {}
    for times in several:
        for one in times:
            found.setdefault(one.what, []).append(one)
    return tuple(
        Spent(what, sum(one.seconds for one in alike), added(one.parts for one in alike))
        for what, alike in found.items()
    )
