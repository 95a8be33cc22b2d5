"""Every block is shown in every format, and the names in it move no cursor and start no command."""

from __future__ import annotations

from typing import get_args

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from scanopt_cli.reports import as_markdown, as_rich
from scanopt_cli.reports.document import (
    Block,
    Column,
    Heading,
    Item,
    Paragraph,
    Preformatted,
    Prose,
    Sign,
    Span,
    Style,
    Table,
)
from support.every_block import STRUCTURE, blocks_of
from support.printing import printed

UGLY = "\x1b[2Jname\n::error::x"
HARMLESS = r"\x1b[2Jname\n\x3a:error\x3a:x"
BLOCKS = blocks_of(UGLY)


def test_no_kind_of_block_is_forgotten() -> None:
    assert {type(block) for block in [*BLOCKS, Prose("")]} == set(get_args(Block.__value__))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_names_are_shown_and_do_nothing(block: Block) -> None:
    shown = printed([block], 200)
    assert HARMLESS in shown
    marked = as_markdown.render([block])
    assert "name" in marked
    for line in (shown + marked).split("\n"):
        assert line.isprintable()
        assert not line.lstrip().startswith("::")


def test_one_empty_line_follows_a_table_in_what_rich_prints_too() -> None:
    (table,) = (block for block in BLOCKS if isinstance(block, Table))
    blocks: list[Block] = [table, Paragraph(), Paragraph("after"), Paragraph(), Paragraph("last")]
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(as_rich.renderable(blocks))
    assert captured.get() == printed(blocks, 80)
    *_, row, below, after, between, last = captured.get().splitlines()
    assert HARMLESS in row
    assert [below.strip(), after, between, last] == ["", "after", "", "last"]


def test_markdown() -> None:
    assert as_markdown.render(STRUCTURE).splitlines() == [
        r"### a\_b",
        "",
        "two",
        "",
        "- `+` added first",
        "  - why",
        "  - second **x**",
        "",
        "| what | times |",
        "|---|---:|",
        r"| a\|b | 3 |",
        "",
        "```",
        "  as it is",
        "```",
        "",
        "root",
        "",
        "- one",
        "  - in one",
        "- two",
        "",
        "*ours*",
    ]


@pytest.mark.parametrize("second", range(len(BLOCKS)), ids=lambda i: type(BLOCKS[i]).__name__)
def test_nothing_in_markdown_is_a_link_or_html_whatever_is_before(second: int) -> None:
    name = "<b>x</b> [l](http://e.example) ```` ```"
    blocks = blocks_of(name)
    for first in blocks:
        text = as_markdown.render([first, blocks[second]])
        html = MarkdownIt().enable("table").render(text)
        assert "<b>" not in html
        assert "<a " not in html
        is_code = isinstance(blocks[second], Preformatted)
        assert is_code <= ("<pre><code>" in html)


@pytest.mark.parametrize("text", ["1. x.pkl", "- x", "+ x", "    x", "= x"])
def test_a_paragraph_is_no_list_and_no_code(text: str) -> None:
    html = MarkdownIt().render(as_markdown.render([Paragraph("a"), Paragraph(text)]))
    assert html == f"<p>a</p>\n<p>{text.strip()}</p>\n"


def test_marks_are_beside_letters() -> None:
    blanks = Paragraph(["a", Span("  b ", Style.STRONG), "c"])
    assert as_markdown.render([blanks]) == "a  **b** c"


def test_a_sign_that_is_not_clear_has_its_word() -> None:
    for is_clear in (True, False):
        item = Item("x", sign=Sign("~", Style.GOOD, "changed", is_clear))
        assert printed([item]).split() == (["~", "x"] if is_clear else ["~", "changed", "x"])
        assert as_markdown.render([item]) == "- `~` changed x"


def test_a_table_without_room_gives_way() -> None:
    columns = (Column("what", wraps=False), Column("how many", is_number=True))
    narrow = Table(columns, [(UGLY, "3")], least_width=60, otherwise=[Item("a few lines")])
    assert printed([narrow], 59) == "a few lines\n"
    assert "how many" in printed([narrow], 60)


def test_what_must_not_wrap_stays_on_its_line() -> None:
    long = "word " * 30
    assert printed([Item(long, depth=1, wraps=False)], 40).splitlines() == [f"  {long}"]
    assert printed([Heading(long, "verdict")], 40).splitlines() == [f"{long}: verdict"]
    assert max(map(len, printed([Item(long), Preformatted([long])], 40).splitlines())) <= 40


def test_an_item_that_does_not_wrap_has_its_sign_and_its_notes() -> None:
    long, sign = "word " * 30, Sign("~", Style.WARNING, "changed", is_clear=False)
    item = Item(long, sign=sign, notes=["note", long], depth=1, wraps=False)
    shown = [line.rstrip() for line in printed([item], 40).splitlines()]
    assert shown == [f"  ~ changed {long}".rstrip(), "    note", f"    {long}".rstrip()]


def test_nothing_is_shown_of_a_report_that_fails() -> None:
    def report():
        yield Paragraph("begun")
        raise ValueError("on the way")

    console = Console(color_system=None)
    with console.capture() as captured, pytest.raises(ValueError, match="on the way"):
        as_rich.show(console, report(), folds=True)
    assert captured.get() == ""
