"""The first NaN or infinity: where, why, what its node reads, and what was harmless."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.reports.document import Block, Item, Paragraph, Span, Style
from scanopt_cli.text import at_place, enumerated, few, plural
from scanopt_cli.tracing.nan_result import BadNode, FirstNan, HarmlessNode

_NAMED = 4
_MOST_HARMLESS = 5
_WHY = {
    "domain": "it is defined for none of these numbers",
    "pole": "it is infinite at zero",
    "overflow": "the numbers are too large",
    "indefinite": "it is undefined for infinities",
    "constant": "a constant that it reads is that",
    "passed on": "what it reads is that already",
}


def nan_report(found: FirstNan) -> Iterator[Block]:
    """Yield the verdict, the node with what it reads, and what was harmless."""
    drawn = "drawn arguments: " if found.is_drawn else "arguments: "
    hint = "; record a call by scanopt capture, or give --arguments" if found.is_drawn else ""
    yield Paragraph(Span(f"{drawn}{found.arguments}{hint}", Style.FAINT))
    yield Paragraph([Span(summary(found), Style.BAD if found.is_bad else Style.GOOD)])
    if found.node is not None:
        yield Item(
            ["computes ", Span(found.node.name, Style.NAME), f" = {found.node.value}"],
            notes=[
                f"of {read.name} = {read.value or 'not known'}"
                + (", which is not finite" if read.is_bad else "")
                for read in found.node.inputs
            ],
            depth=1,
        )
        yield Item(_fate(found), depth=1)
    for held in found.held_by:
        yield Item(f"the input {held.name} holds it: {held.value}", depth=1)
    if found.harmless:
        yield Paragraph()
        yield Paragraph("harmless, since no slot and no output ever held it:")
        yield from (_harmless(one) for one in found.harmless[:_MOST_HARMLESS])
        more = len(found.harmless) - _MOST_HARMLESS
        if more > 0:
            yield Item(f"… {plural(more, 'more node')}", depth=1)


def summary(found: FirstNan) -> str:
    """Return in one line what was found first, and where."""
    node = found.node
    if node is None:
        given = ", though inputs do" if found.held_by else ""
        ran = f" in {plural(found.steps, 'step')}" if found.steps else ""
        what = "NaN" if found.allows_inf else "NaN or infinity"
        if found.counts_masked:
            return f"no node computes a {what}{ran}{given}"
        return f"no slot and no output holds a {what}{ran}{given}"
    kind = "NaN" if "NaN" in node.value or node.why in ("domain", "indefinite") else "infinity"
    if found.is_from_input:
        return f"the {kind} in {found.slot or 'an output'} is from the inputs: {_where(node)}"
    return f"the first {kind} is {node.name} {_where(node)}: {_WHY[node.why]}"


def _where(node: BadNode) -> str:
    if node.loop is None:
        return "outside of all loops"
    around = enumerated([f"step {one.step} of {one.loop}" for one in node.outer_steps])
    inside = f", in {around}" if around else ""
    return f"in step {node.step} of {node.loop}{at_place(node.place)}{inside}"


def _fate(found: FirstNan) -> str:
    if found.slot is None and found.counts_masked:
        return "no slot and no output holds it at the end of that step"
    held = f"{found.slot} holds it" if found.slot else "it stays"
    if not found.reaches:
        return f"{held}; no output of the graph does"
    return f"{held}, and in the end {few(found.reaches, _NAMED)}"


def _harmless(one: HarmlessNode) -> Item:
    where = "outside of all loops" if one.loop is None else f"in {one.loop}"
    times = "" if one.loop is None else f", {plural(one.steps, 'step')}"
    return Item([Span(one.name, Style.NAME), f": {one.value} {where}{times}"], depth=1)
