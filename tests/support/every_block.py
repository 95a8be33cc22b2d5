"""Blocks of every kind, to show in every format."""

from __future__ import annotations

from scanopt_cli.reports.document import (
    Block,
    Column,
    Heading,
    Item,
    Nested,
    Paragraph,
    Preformatted,
    Prose,
    Sign,
    Span,
    Style,
    Table,
    Tree,
)

STRUCTURE: list[Block] = [
    Heading("a_b", "two"),
    Item("first", sign=Sign("+", Style.GOOD, "added"), notes=["why"]),
    Item(["second ", Span("x", Style.NAME)], depth=1),
    Paragraph(),
    Table((Column("what"), Column("times", is_number=True)), [("a|b", "3")]),
    Nested([Preformatted(["  as it is"])], depth=1),
    Tree("root", [Tree("one", [Tree("in one")]), Tree("two")]),
    Prose("*ours*"),
]
"""One of each kind."""


def blocks_of(name: str, ours: str = "what") -> list[Block]:
    """Return blocks with a name from a file wherever there may be one.

    Our own are prose, the words for signs, and the heads of columns, which are ``ours``.
    """
    table = Table(
        (Column(ours, wraps=False), Column("how many", is_number=True)),
        [(name, "3")],
    )
    return [
        Heading(name, name),
        Paragraph(["a ", *(Span(name, style) for style in Style if style is not Style.CODE)]),
        Item(name, sign=Sign("~", Style.GOOD, ours), notes=[name], depth=1),
        table,
        Preformatted([name, [" ", Span(name, Style.BAD)]]),
        Tree(name, [Tree(name, [Tree(name)]), Tree(name)]),
        Nested([Paragraph(name), Item(name), table], depth=2),
    ]
