"""The values of loops at each step: a line a slot, with a sparkline, and a table of the steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from scanopt_cli.analysis.expression_text import before_title
from scanopt_cli.reports.document import (
    Block,
    Column,
    Item,
    Paragraph,
    Span,
    Style,
    Table,
)
from scanopt_cli.reports.sparklines import sparkline
from scanopt_cli.reports.tables import GAP, fitting
from scanopt_cli.text import at_place, enumerated, plural
from scanopt_cli.tracing.result import LoopTrace, SlotTrace, Trace
from scanopt_cli.tracing.values import range_text, shape_text, value_text

_SPARK = 24
# The narrowest terminal for which a table is made.
_WIDTH = 80
_MOST_STEPS = 40
_FEW_STEPS = 4
_DETAILS = "the values of each step: scanopt trace GRAPH --loop NAME, or --csv FILE, --npz FILE"


def trace_report(trace: Trace, *, every_step: bool = False) -> Iterator[Block]:
    """Yield a part for each loop; of a lone one, its steps, of many only some unless asked for."""
    drawn = "drawn arguments: " if trace.is_drawn else "arguments: "
    hint = "; record a call by scanopt capture, or give --arguments" if trace.is_drawn else ""
    yield Paragraph([Span(f"{drawn}{trace.arguments}", Style.FAINT), Span(hint, Style.FAINT)])
    yield Paragraph()
    for loop in trace.loops:
        yield from loop_report(loop, with_steps=len(trace.loops) == 1, every_step=every_step)
    if len(trace.loops) > 1:
        yield Paragraph([Span(_DETAILS, Style.FAINT)])


def loop_report(
    loop: LoopTrace, *, with_steps: bool = True, every_step: bool = False
) -> Iterator[Block]:
    """Yield what a loop is, a line for each slot, and with its steps a table of those."""
    name = Span(loop.title, Style.NAME)
    yield Paragraph([before_title(loop.kind, loop.title), name, f"{_facts(loop)}"])
    if not loop.steps and loop.n_steps:
        yield Paragraph([Span("none of these steps was run", Style.WARNING)])
    if loop.error is not None:
        yield Paragraph([Span(f"step {loop.n_steps - 1} raises {loop.error}", Style.BAD)])
    yield _overview(loop)
    if with_steps and loop.steps:
        yield from _steps(loop, every_step=every_step)
    if loop.nodes:
        yield Paragraph("inside, in the order of computation:")
        yield _nodes(loop)


def _facts(loop: LoopTrace) -> str:
    steps = plural(loop.n_steps, "step")
    if loop.is_complete and loop.n_steps < loop.most_steps:
        steps = f"stopped after {steps} of at most {loop.most_steps}"
    elif not loop.is_complete and loop.error is None:
        steps = f"the first {steps} of at most {loop.most_steps}"
    facts = [steps]
    if loop.outer_steps:
        facts.append(enumerated([f"step {one.step} of {one.loop}" for one in loop.outer_steps]))
    if loop.is_batched:
        facts.append("the first entry of the batch")
    return f"{at_place(loop.place)}: {', '.join(facts)}"


def _overview(loop: LoopTrace) -> Table:
    """Return a line for each slot: its kind and type, how it runs, and its range."""
    columns = tuple(map(Column, ("slot", "kind", "type", "over the steps", "range")))
    rows = [(one.name, one.kind, _type(one), *_course(one)) for one in loop.slots]
    items: list[Block] = [
        Item(
            [Span(name, Style.STRONG), f"  {kind}, {dtype}" if dtype else f"  {kind}"],
            notes=[" ".join(filter(None, course))],
            depth=1,
        )
        for name, kind, dtype, *course in rows
    ]
    return fitting(columns, rows, [*items, Paragraph()])


def _type(one: SlotTrace) -> str:
    shape = one.shape
    if shape is None:
        return f"{one.dtype} (shape changes)" if one.rows else one.dtype
    return f"{one.dtype} {shape_text(shape)}" if shape else one.dtype


def _course(one: SlotTrace) -> tuple[str, str]:
    """Return how the values of a series run, and their range; of a constant, its value."""
    rows = one.rows
    if one.is_constant:
        text = value_text(rows[0])
        return "", text.removeprefix(shape_text(rows[0].shape)).strip()
    numbers = [row.ravel() for row in rows if row.dtype.kind in "biufc"]
    joined = np.concatenate(numbers) if numbers else np.zeros(0)
    return sparkline(rows, _SPARK), range_text(joined)


def _steps(loop: LoopTrace, *, every_step: bool) -> Iterator[Block]:
    """Yield a table with a row for each step; where there is no room, several beside each other."""
    changing = [one for one in loop.slots if not one.is_constant]
    if not changing:
        return
    numbers: list[str] = []
    cells: list[list[str]] = []
    n_initial = max(len(one.initial) for one in changing) if loop.steps[:1] == (0,) else 0
    for back in range(n_initial, 0, -1):
        numbers.append("start" if n_initial == 1 else f"start {-back}")
        cells.append([_initial(one, back) for one in changing])
    texts = [list(map(value_text, one.rows)) for one in changing]
    shown: list[int | None] = list(range(len(loop.steps)))
    if len(shown) > _MOST_STEPS and not every_step:
        half = _MOST_STEPS // 2
        shown = [*shown[:half], None, *shown[-half:]]
    for place in shown:
        numbers.append("…" if place is None else str(loop.steps[place]))
        cells.append(["…" if place is None else text[place] for text in texts])
    columns = [one.name for one in changing]
    yield from _side_by_side(numbers, columns, cells)
    if None in shown:
        left = len(loop.steps) - _MOST_STEPS
        text = f"… {plural(left, 'more step')}; --steps a:b shows those, --csv FILE has all"
        yield Paragraph(Span(text, Style.FAINT))


def _initial(one: SlotTrace, back: int) -> str:
    return value_text(one.initial[-back]) if back <= len(one.initial) else ""


def _side_by_side(
    numbers: Sequence[str], names: Sequence[str], cells: Sequence[Sequence[str]]
) -> Iterator[Block]:
    """Yield one table, or several for 80 columns, or a list of steps where those have no room."""
    widths = [
        max([len(name), *(len(row[place]) for row in cells)]) for place, name in enumerate(names)
    ]
    first = max(len("step"), *map(len, numbers))

    def width(places: Sequence[int]) -> int:
        return first + sum(GAP + widths[place] for place in places) + 2

    groups: list[list[int]] = [[]]
    for place in range(len(names)):
        if groups[-1] and width([*groups[-1], place]) > _WIDTH:
            groups.append([])
        groups[-1].append(place)

    def table(places: Sequence[int], least: int, otherwise: Sequence[Block]) -> Table:
        titles = ["step", *(names[place] for place in places)]
        pairs = zip(numbers, cells, strict=True)
        rows = [(number, *(row[place] for place in places)) for number, row in pairs]
        return Table([Column(title, is_number=True) for title in titles], rows, least, otherwise)

    steps: list[Block] = [
        Item(
            f"step {number}" if number.isdecimal() else number,
            notes=[f"{name}  {text}" for name, text in zip(names, row, strict=True) if text],
            depth=1,
        )
        for number, row in zip(numbers, cells, strict=True)
    ]
    most = max(map(width, groups))
    parts = [
        table(places, most, [] if number else [*steps, Paragraph()])
        for number, places in enumerate(groups)
    ]
    everything = range(len(names))
    yield table(everything, width(everything), parts)


def _nodes(loop: LoopTrace) -> Table:
    """Return a line for each node: of few steps its values, of more how they run."""
    if len(loop.steps) <= _FEW_STEPS:
        titles = [f"step {number}" for number in loop.steps]
        rows = [(one.name, *map(value_text, one.rows)) for one in loop.nodes]
    else:
        titles = ["over the steps", "range"]
        rows = [(one.name, *_course(one)) for one in loop.nodes]
    columns = [Column("node"), *map(Column, titles)]
    items: list[Block] = [
        Item(name, notes=["  ".join(filter(None, values))], depth=1) for name, *values in rows
    ]
    return fitting(columns, rows, [*items, Paragraph()])
