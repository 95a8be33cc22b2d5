"""The distinct loops of a graph in a table, and each of their slots in another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from scanopt_cli.analysis.distinct_loops import DistinctLoop, distinct_loops
from scanopt_cli.analysis.expression_text import before_title
from scanopt_cli.analysis.inspection import Inspection, ScanReport
from scanopt_cli.analysis.same_draws import SAME_DRAWS
from scanopt_cli.analysis.step_costs import StepCost
from scanopt_cli.reports.document import (
    Block,
    Column,
    Item,
    Line,
    Nested,
    Paragraph,
    Span,
    Style,
    Table,
    left_out,
)
from scanopt_cli.reports.slot_table import slot_rows, slot_table, split_slots
from scanopt_cli.text import UNNAMED, at_place, cut, enumerated, few, plural, size_text

_COLUMNS = (
    Column("loop"),
    Column("where"),
    Column("times", is_number=True),
    Column("steps"),
    Column("slots"),
    Column("dtype"),
    Column("buffers"),
    Column("a step"),
)
# In a narrower table each cell would be only a few letters wide.
_TABLE_WIDTH = 120
# With so few loops and rows of slots, a screen has room for all of them.
_FEW_LOOPS, _FEW_SLOTS = 2, 8
_MOST_LOOPS = 11
# Of more loops than `_SOME`, operations are counted, not named.
_SOME, _MOST_ARRAYS = 8, 3
_LONGEST = 40
_NAMED = 3
_DETAILS = "details: scanopt inspect GRAPH --loop NAME, or --loop LINE"


def inspect_report(
    inspection: Inspection, *, details: bool | None = None, is_brief: bool = True
) -> Iterator[Block]:
    """Yield a row for each distinct loop, or the details of each.

    Without ``details``, those of a graph of few loops with few slots. What is brief has room on a
    screen, and says how to see more.
    """
    loops = distinct_loops(inspection.scans)
    if not loops:
        yield Paragraph("no loop in this graph")
        return
    if details is None:
        n_slots = sum(len(split_slots(loop.first)) for loop in loops)
        details = len(loops) <= _FEW_LOOPS and n_slots <= _FEW_SLOTS
    blocks = list(_details(loops) if details else _overview(inspection, loops, is_brief=is_brief))
    yield from blocks
    texts = [f"{s.steps} {s.bytes}" for s in inspection.scans]
    if details:
        texts += [" ".join(cell for row in slot_rows(loop.first) for cell in row) for loop in loops]
    if any("?" in text for text in texts):
        yield Paragraph(UNNAMED)


def _overview(
    inspection: Inspection, loops: Sequence[DistinctLoop], *, is_brief: bool
) -> Iterator[Block]:
    count = len(inspection.scans)
    distinct = f", {len(loops)} of them distinct" if len(loops) < count else ""
    size = (
        ""
        if inspection.bytes == "0"
        else f"; buffers: {cut(size_text(inspection.bytes), _LONGEST)}"
    )
    dtypes = {_dtypes(loop.first) for loop in loops}
    dtype = f"; {dtypes.pop()}" if len(dtypes) == 1 else ""
    yield Paragraph(f"{plural(count, 'loop')}{distinct}{dtype}{size}")
    shown = loops[: _MOST_LOOPS if is_brief else None]
    arrays = _MOST_ARRAYS if len(shown) <= _SOME else 0
    rows = [_row(loop, arrays) for loop in shown]
    items: list[Block] = [
        Paragraph(),
        *(_item(loop, arrays, with_dtype=not dtype) for loop in shown),
        Paragraph(),
    ]
    yield Table(_COLUMNS, rows, least_width=_TABLE_WIDTH, otherwise=items)
    if len(loops) > len(shown):
        yield left_out(len(loops) - len(shown), "distinct loop", "--format json has all")
    for loop in loops:
        yield from _warnings(loop.first)
    on_numbers = [loop.first.title for loop in loops if loop.first.step.is_on_numbers]
    if len(on_numbers) == len(loops):
        yield Paragraph("all steps are on numbers alone: enabled() compiles them to machine code")
    elif on_numbers:
        names = few(on_numbers, _NAMED)
        yield Paragraph(f"on numbers alone, which enabled() compiles to machine code: {names}")
    if is_brief:
        yield Paragraph([Span(_DETAILS, Style.FAINT)])


def _details(loops: Sequence[DistinctLoop]) -> Iterator[Block]:
    for loop in loops:
        scan = loop.first
        blocks = [*_title(loop), slot_table(scan), *_warnings(scan)]
        yield Nested(blocks, depth=loop.level)


def _warnings(scan: ScanReport) -> Iterator[Block]:
    names = [slot.name for slot in scan.slots if slot.same_draws]
    if names:
        text = SAME_DRAWS.format(generators=", ".join(names))
        yield Paragraph([Span("warning: ", Style.WARNING), f"{scan.title}: {text}"])
        yield Paragraph()


def _title(loop: DistinctLoop) -> Iterator[Block]:
    """Yield the name of a loop, its trip count and other facts, and what a step costs."""
    scan = loop.first
    facts = [plural(scan.steps, "step"), f"{plural(scan.inner_nodes, 'node')} inside"]
    if scan.stops_when is not None:
        facts.append(f"stops when {scan.stops_when}")
    if scan.runs_while is not None:
        facts.append(f"goes on while {scan.runs_while}")
    if scan.batch_ndim:
        facts.append(f"batched over {scan.batch_ndim} {'axis' if scan.batch_ndim == 1 else 'axes'}")
    if scan.truncate_gradient != -1:
        facts.append(f"gradient truncated after {plural(scan.truncate_gradient, 'step')}")
    if scan.bytes != "0":
        facts.append(f"{size_text(scan.bytes)} of buffers")
    kind, name = before_title(scan.kind, scan.name), Span(scan.name, Style.NAME)
    path = f" in {' / '.join(scan.path)}" if scan.path else ""
    copies = f", {_copies(loop)}, and this is the first" if len(loop.copies) > 1 else ""
    yield Paragraph([kind, name, f"{path}{at_place(scan.place)}: {', '.join(facts)}{copies}"])
    yield Paragraph(f"a step: {_cost(scan.step)}")


def _row(loop: DistinctLoop, most_arrays: int) -> tuple[Line, ...]:
    scan = loop.first
    indent = "  " * (loop.level - 1) + "↳ " if loop.level else ""
    differ = f", {_copies(loop)}" if len(loop.copies) > 1 else ""
    return (
        [indent, Span(_own_name(loop), Style.NAME), differ],
        _where(loop),
        str(len(loop.copies)),
        cut(scan.steps, _LONGEST),
        _slots(scan),
        _dtypes(scan),
        _size(loop),
        _cost(scan.step, most_arrays),
    )


def _item(loop: DistinctLoop, most_arrays: int, *, with_dtype: bool) -> Item:
    """Return two lines or so for one loop."""
    scan = loop.first
    where = _where(loop)
    facts = [
        plural(cut(scan.steps, _LONGEST), "step"),
        _dtypes(scan) if with_dtype else "",
        _size(loop),
    ]
    first: Line = [
        Span(_own_name(loop), Style.NAME),
        Span(f" ({where})" if where else "", Style.FAINT),
        f": {', '.join(filter(None, facts))}",
    ]
    step = f"{_slots(scan)}; a step: {_cost(scan.step, most_arrays)}"
    if len(loop.copies) == 1:
        notes = [step]
    elif most_arrays:
        notes = [_copies(loop), step]
    else:
        notes = [f"{len(loop.copies)} copies; {step}"]
    return Item(first, notes=notes, depth=loop.level)


def _own_name(loop: DistinctLoop) -> str:
    """Return the name of a loop, with those of the graphs around it that are no loops."""
    scan = loop.first
    return scan.name if loop.level else scan.title


def _where(loop: DistinctLoop) -> str:
    places = loop.places
    first = places[0].partition(" in ")[0] if places else ""
    return few([first, *places[1:]], 1)


def _copies(loop: DistinctLoop) -> str:
    return f"{len(loop.copies)} copies, which differ in {enumerated(loop.differences)}"


def _size(loop: DistinctLoop) -> str:
    """Return the memory that a loop's buffers take, of one of the copies."""
    sizes = {scan.bytes for scan in loop.copies}
    if sizes == {"0"}:
        return "no buffer"
    which = "" if len(loop.copies) == 1 else " each" if len(sizes) == 1 else " (the first)"
    return cut(size_text(loop.first.bytes), _LONGEST) + which


def _slots(scan: ScanReport) -> str:
    """Return how many slots of each kind there are; an array that was split counts as one."""
    counts = Counter(slots[0].kind for slots in split_slots(scan) if slots[0].kind != "index")
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no slots"


def _dtypes(scan: ScanReport) -> str:
    """Return the dtypes of what a loop carries and returns, of all that it reads if it does not."""
    slots = [slot for slot in scan.slots if slot.out_taps] or scan.slots
    return ", ".join(dict.fromkeys(slot.dtype for slot in slots))


def _cost(step: StepCost, most: int | None = None) -> str:
    """Return what a step computes, with ``most`` operations on arrays, or with all.

    With 0, all is counted.
    """
    if step.is_on_numbers:
        return f"{plural(step.numbers, 'node')} on numbers alone"
    if most != 0:
        return step.text(most)
    on_arrays = sum(operation.count for operation in step.arrays)
    parts = [f"{plural(step.numbers, 'node')} on numbers"] if step.numbers else []
    parts += [f"{on_arrays} on arrays"] if on_arrays else []
    parts += [plural(step.draws, "draw")] if step.draws else []
    parts += [plural(len(step.inner_loops), "loop")] if step.inner_loops else []
    return ", ".join(parts) or "nothing"
