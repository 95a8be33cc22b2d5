"""Rules and their manuals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scanopt_cli.reports.document import (
    Block,
    Column,
    Heading,
    Item,
    Paragraph,
    Prose,
    Span,
    Style,
    Table,
)
from scanopt_cli.rules.rule_manuals import RuleManual

# In a narrower table the texts would be only a few letters wide.
_TABLE_WIDTH = 70


def rules_report(manuals: Sequence[RuleManual], *, whole: bool) -> Iterator[Block]:
    """Yield the rules, one on each line; with ``whole``, the whole manual of each."""
    if len(manuals) > 1:
        yield _table(manuals)
    if whole:
        for manual in manuals:
            rule = f"{manual.severity}, {_fix(manual)}"
            rule += "" if manual.is_default else "; only if it is selected"
            yield Heading(f"{manual.code} {manual.name}", rule)
            yield from (Paragraph(), Prose(manual.text))
    else:
        yield Paragraph("`scanopt rules CODE` prints a rule's manual.")


def _table(manuals: Sequence[RuleManual]) -> Table:
    columns = (
        Column("code", wraps=False),
        Column("name", wraps=False),
        Column("what it finds"),
        Column("fix", wraps=False),
    )
    rows = [(Span(m.code, Style.STRONG), m.name, m.summary, _short_fix(m) or "") for m in manuals]
    items = [Item([code, f" {name}"], notes=[text]) for code, name, text, _ in rows]
    return Table(columns, rows, least_width=_TABLE_WIDTH, otherwise=[*items, Paragraph()])


def _fix(manual: RuleManual) -> str:
    if manual.fix is None:
        return "no pass mends it"
    return f"mended by {manual.fix}{'' if manual.is_safe else ', which is not safe'}"


def _short_fix(manual: RuleManual) -> str | None:
    return None if manual.fix is None else "safe" if manual.is_safe else "unsafe"
