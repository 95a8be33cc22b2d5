"""What `enabled` did: the loops of each compilation, the time, and what is left on arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scanopt_cli.integration.compilation.blocks import Compilation, Enabled
from scanopt_cli.integration.compilation.left_loops import LoopLeft
from scanopt_cli.pipeline.grammar import described
from scanopt_cli.remarks import Remark
from scanopt_cli.reports.document import (
    Block,
    Column,
    Heading,
    Item,
    Line,
    Paragraph,
    Sign,
    Span,
    Style,
    Table,
    left_out,
    located,
)
from scanopt_cli.reports.headline import loops_of
from scanopt_cli.reports.remark_text import grouped, hint_of, text_of
from scanopt_cli.text import UNNAMED, plural

_ON_NUMBERS = Sign("~", Style.GOOD, "on numbers")
_LEFT = Sign("=", Style.WARNING, "left")
_MOST_COMPILATIONS = 30
_MOST_LOOPS = 30
_MOST_OPERATIONS = 6
STAGES = {
    "passes": "passes",
    "rewriting": "PyTensor",
    "reading": "reading",
    "linking": "linking",
    "writing": "code",
    "numba": "Numba",
    "llvm": "LLVM",
}
"""The stages of a compilation, and what the table calls them."""
_LEAST_SECONDS = 0.005


def enabled_report(done: Enabled) -> Iterator[Block]:
    """Yield a row for each compilation, and an entry for each distinct loop that is left."""
    found = done.compilations
    heading = f"enabled ({described(done.pipeline)})"
    if not found:
        yield Heading(heading, "no graph with a loop was compiled")
        return
    yield Heading(
        heading,
        f"{plural(len(found), 'graph')} with loops compiled; the passes took {done.seconds:.2f} s "
        f"of the {done.rewriting_seconds:.2f} s in which PyTensor rewrote graphs",
    )
    yield from _compilations(found)
    yield from _steps(found)


def compilation_report(done: Compilation) -> Iterator[Block]:
    """Yield the same of one compilation."""
    yield from _compilations([done])
    yield from _steps([done])


def _compilations(found: Sequence[Compilation]) -> Iterator[Block]:
    rows: list[Sequence[Line]] = [
        (
            str(number),
            _function(done),
            loops_of(done.before),
            loops_of(done.after),
            f"{done.stages.total:.2f}",
            _spent(done),
        )
        for number, done in enumerate(found[:_MOST_COMPILATIONS], 1)
    ]
    titles = (Column("compiled"), Column("before"), Column("after"))
    spent = Column("seconds", is_number=True), Column("of which")
    yield Table((Column("", is_number=True), *titles, *spent), rows)
    if len(found) > _MOST_COMPILATIONS:
        yield left_out(len(found) - _MOST_COMPILATIONS, "compilation", "`compilations` has all")


def _spent(done: Compilation) -> str:
    """Return how long the stages of a compilation took, those that took any time."""
    spent = {title: getattr(done.stages, name) for name, title in STAGES.items()}
    told = {title: seconds for title, seconds in spent.items() if seconds >= _LEAST_SECONDS}
    return ", ".join(f"{title} {seconds:.2f}" for title, seconds in told.items())


def _function(done: Compilation) -> Line:
    if done.function is None:
        return done.place or ""
    return located(done.function, done.place)


@dataclass(frozen=True, slots=True)
class _Left:
    """A loop that is left, and why."""

    loop: LoopLeft
    why: tuple[Remark, ...]

    @property
    def is_done(self) -> bool:
        """Whether it is a loop whose steps are on numbers, those of the loops inside aside."""
        return self.loop.design != "Scan" and not self.loop.cost.arrays


def _steps(found: Sequence[Compilation]) -> Iterator[Block]:
    """Yield the loops that are left, those first that are not on numbers."""
    numbers: dict[tuple[object, ...], list[int]] = {}
    entries: dict[tuple[object, ...], _Left] = {}
    for number, done in enumerate(found, 1):
        for loop in done.left:
            left = _Left(loop, done.why(loop))
            key = (loop, *(text_of(remark) for remark in left.why))
            entries.setdefault(key, left)
            numbers.setdefault(key, []).append(number)
    if not entries:
        yield Paragraph("no loop is left")
        return
    on_numbers = sum(left.is_done for left in entries.values())
    yield Paragraph(f"{plural(len(entries), 'loop')} left, {on_numbers} of them on numbers alone")
    ordered = sorted(entries, key=lambda key: entries[key].is_done)
    for key in ordered[:_MOST_LOOPS]:
        # Which compilations a loop is in says something only if there are several.
        yield _entry(entries[key], numbers[key] if len(found) > 1 else [])
    if len(ordered) > _MOST_LOOPS:
        yield left_out(len(ordered) - _MOST_LOOPS, "loop", "`left` of a compilation has all")
    if any("?" in left.loop.cost.text(_MOST_OPERATIONS) for left in entries.values()):
        yield Paragraph(UNNAMED)


def _entry(left: _Left, numbers: Sequence[int]) -> Item:
    loop = left.loop
    within = f" in {', '.join(map(str, dict.fromkeys(numbers)))}" if numbers else ""
    text: Line = [
        *located(loop.name, loop.place),
        f"{within}: {loop.design}, {loop.cost.text(_MOST_OPERATIONS)}",
    ]
    notes = [] if left.is_done else [_because(remark) for remark in grouped(left.why)]
    return Item(text, sign=_ON_NUMBERS if left.is_done else _LEFT, notes=notes, depth=1)


def _because(remark: Remark) -> Line:
    hint = hint_of(remark)
    return [text_of(remark), Span("" if hint is None else f" ({hint})", Style.FAINT)]
