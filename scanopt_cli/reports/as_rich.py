"""Print blocks of text for a person at a terminal, by Rich."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from io import StringIO

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text
from rich.tree import Tree as RichTree

from scanopt_cli.reports.document import (
    Block,
    Heading,
    Item,
    Line,
    Nested,
    Paragraph,
    Preformatted,
    Prose,
    Style,
    Table,
    Tree,
    spans,
)
from scanopt_cli.text import printable

_STYLES = {
    Style.PLAIN: "",
    Style.STRONG: "bold",
    Style.NAME: "cyan",
    Style.CODE: "",
    Style.GOOD: "green",
    Style.BAD: "red",
    Style.WARNING: "yellow",
    Style.FAINT: "dim",
}
_INDENT = 2
_INDENT_NESTED = 4


def show(console: Console, blocks: Iterable[Block], *, folds: bool | None = None) -> None:
    """Print blocks, one after the other. If making one fails, nothing is printed.

    Lines are folded at blanks where ``folds``: at a terminal, and if ``COLUMNS`` says how wide they
    are. Headings and items that do not wrap are folded at a terminal alone.
    """
    at_terminal = console.file.isatty()
    if folds is None:
        folds = at_terminal or "COLUMNS" in os.environ
    for block in list(_apart_once(blocks)):
        is_one_line = isinstance(block, Heading) or (isinstance(block, Item) and not block.wraps)
        if isinstance(block, Item):
            block = replace(block, wraps=at_terminal or (block.wraps and folds))
        whole = not at_terminal and (is_one_line or not folds)
        is_text = isinstance(block, Heading | Paragraph | Item)
        console.print(_rendered(block), soft_wrap=whole and is_text)


def renderable(blocks: Iterable[Block]) -> RenderableType:
    """Return what prints ``blocks`` as a terminal shows them, for a console of any width."""
    folding = (replace(b, wraps=True) if isinstance(b, Item) else b for b in _apart_once(blocks))
    return Group(*map(_rendered, folding))


def plain(blocks: Iterable[Block], width: int = 100) -> str:
    """Return what a pipe of some columns gets, without empty lines at its end."""
    console = Console(
        file=StringIO(),
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        show(console, blocks, folds=True)
    return "\n".join(line.rstrip() for line in captured.get().split("\n")).rstrip("\n")


def _apart_once(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks without the empty lines that follow what ends with one."""
    before: Block | None = None
    for block in blocks:
        if not (isinstance(before, Table | Prose) and block == Paragraph()):
            yield block
            before = block


def _rendered(block: Block) -> RenderableType:
    match block:
        case Heading(title, verdict):
            text = f": {printable(verdict)}" if verdict else ""
            return Text.assemble((printable(title), "bold"), text)
        case Paragraph(text):
            return _text(text)
        case Item():
            return _item(block)
        case Table():
            return _FittingTable(block)
        case Preformatted(lines):
            return Text("\n", no_wrap=True, overflow="ellipsis").join(map(_text, lines))
        case Tree():
            return _tree(block)
        case Prose(markdown):
            from rich.markdown import Markdown  # a fifth of what a command takes to start

            return Markdown(markdown.replace("``", "`"))
        case Nested(blocks, depth):
            return _indented(Group(*map(_rendered, blocks)), _INDENT_NESTED * depth)


def _text(line: Line) -> Text:
    return Text.assemble(*((printable(span.text), _STYLES[span.style]) for span in spans(line)))


def _item(item: Item) -> RenderableType:
    text, notes, mark = _text(item.text), list(map(_text, item.notes)), Text()
    if item.sign is not None:
        style = _STYLES[item.sign.style]
        mark = Text(item.sign.text, style)
        text = Text("" if item.sign.is_clear else f"{item.sign.word} ", style).append_text(text)
    if not item.wraps:
        indent = " " * _INDENT * item.depth
        first = Text.assemble(indent, mark, " " if mark else "", text)
        below = (Text.assemble(indent, " " * _INDENT, note) for note in notes)
        return Text("\n").join([first, *below])
    content: RenderableType
    if mark:
        content = grid = RichTable.grid(padding=(0, 1, 0, 0))
        grid.add_row(mark, Group(text, *notes))
    else:
        content = Group(text, *(_indented(note, _INDENT) for note in notes))
    return _indented(content, _INDENT * item.depth)


def _indented(content: RenderableType, blanks: int) -> Padding:
    return Padding(content, (0, 0, 0, blanks), expand=False)


@dataclass(frozen=True, slots=True)
class _FittingTable:
    """A table, or what stands for it where there is no room."""

    table: Table

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        table = self.table
        if options.max_width < table.least_width:
            yield from map(_rendered, table.otherwise)
            return
        padding = (0, 1, 0, 0) if table.is_dense else (0, 1)
        shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=padding)
        for column in table.columns:
            title = column.title
            if table.is_dense and column.is_number:
                title = title.replace(" ", "\n").replace("-", "-\n")
            shown.add_column(
                title,
                justify="right" if column.is_number else "left",
                # A number in two lines would read as another number.
                no_wrap=column.is_number or not column.wraps,
                overflow="ellipsis" if column.is_number else "fold",
            )
        for row in table.rows:
            shown.add_row(*map(_text, row))
        yield shown


def _tree(tree: Tree) -> RichTree:
    root = RichTree(_text(tree.text))
    waiting = [(root, tree)]
    while waiting:
        shown, branch = waiting.pop()
        waiting += [(shown.add(_text(inner.text)), inner) for inner in branch.branches]
    return root
