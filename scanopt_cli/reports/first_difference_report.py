"""Where the loops of two graphs begin to differ: the step, the node, and what it reads in both."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.reports.document import (
    Block,
    Column,
    Item,
    Paragraph,
    Span,
    Style,
    Table,
)
from scanopt_cli.text import at_place, enumerated, few, plural
from scanopt_cli.tracing.result import FirstDifference, LoopPair, PairOfValues

_NAMED = 4


def first_difference_report(found: FirstDifference) -> Iterator[Block]:
    """Yield the verdict, and the values of both graphs where they part."""
    drawn = "drawn arguments: " if found.is_drawn else "arguments: "
    yield Paragraph(Span(f"{drawn}{found.arguments}", Style.FAINT))
    style = Style.BAD if found.differs else Style.GOOD if found.loops else Style.WARNING
    yield Paragraph([Span(summary(found), style)])
    if found.unmatched:
        yield Item(f"without a counterpart: {few(found.unmatched, _NAMED)}", depth=1)
    for loop in found.loops:
        if loop.longer is not None:
            text = (
                f"{_name(loop)} has more than {plural(loop.steps, 'step')} in {loop.longer} alone"
            )
            yield Item(text, depth=1)
    if found.at is None or found.kind == "error":
        return
    yield Paragraph()
    rows = [_row("reads" if found.kind == "input" else "computes", found.at)]
    rows += [_row("of" if number == 0 else "", read) for number, read in enumerate(found.inputs)]
    columns = tuple(map(Column, ("", "in A", "value", "in B", "value", "")))
    items: list[Block] = [
        Item(
            [Span(f"{role} ", Style.FAINT) if role else "", a if a == b or not b else f"{a} | {b}"],
            notes=[f"A: {value_a or '-'}", f"B: {value_b or '-'}", *([note] if note else [])],
            depth=1,
        )
        for role, a, value_a, b, value_b, note in rows
    ]
    width = sum(max(len(row[place]) for row in rows) for place in range(6)) + 10
    yield Table(columns, rows, width, items)


def _row(role: str, pair: PairOfValues) -> tuple[str, str, str, str, str, str]:
    is_alone = pair.name_a is None or pair.name_b is None
    note = "differs" if pair.differs else "" if is_alone else "equal"
    return (role, pair.name_a or "", pair.a or "", pair.name_b or "", pair.b or "", note)


def summary(found: FirstDifference) -> str:
    """Return in one line where the loops differ."""
    if not found.loops:
        return "no loop of A has a counterpart in B"
    if not found.differs:
        loops = plural(len(found.loops), "pair") + " of loops"
        return f"no difference in {loops}, {plural(found.steps, 'step')}"
    loop = found.loops[-1]
    where = f"{_name(loop)}{at_place(loop.place)}"
    around = enumerated([f"step {one.step} of {one.loop}" for one in found.outer_steps])
    where += f", in {around}" if around else ""
    at = found.at
    match found.kind:
        case "error" if at is not None:
            texts = [t if t == "computes" else f"raises {t}" for t in (at.a or "", at.b or "")]
            return f"{where}: in step {found.step}, A {texts[0]} and B {texts[1]}"
        case "input" if at is not None:
            return f"{where}: step {found.step} reads another {at.name_a}, {found.by}"
    slot = "" if found.slot is None else f", which makes {found.slot} another"
    name = "" if at is None else f" {at.name_a}"
    if at is not None and at.name_a != at.name_b:
        name += f" ({at.name_b} in B)"
    return f"{where}: the first difference is in step {found.step}, at{name}, {found.by}{slot}"


def _name(loop: LoopPair) -> str:
    same = loop.name_a == loop.name_b
    return loop.name_a if same else f"{loop.name_a} of A and {loop.name_b} of B"
