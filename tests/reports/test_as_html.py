"""Blocks as HTML: well-formed, with real tables, and no name in them is markup or a formula."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from scanopt_cli.reports import as_html
from scanopt_cli.reports.document import Block, Paragraph, Prose, Tree
from support.every_block import STRUCTURE, blocks_of

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "attribute": "\"><img src=x onerror='alert(1)'>",
    "entity": "a&lt;b & c &#60;",
    "control": "\x1b[2J\x00\x07\r\nnext\u202eright\u2028",
    "formula": r"$\href{javascript:alert(1)}{x}$ \(x\) \[y\] \begin{equation}",
    "comment": "<!-- --> ]]> </div></table></pre>",
    "surrogate": "\ud800",
    "command": "::error::x ##[error]",
}
ALLOWED = {"div", "p", "strong", "code", "span", "ul", "li", "pre"}
ALLOWED |= {"table", "thead", "tbody", "tr", "th", "td"}


class _Reader(HTMLParser):
    """Reads strictly: tags are closed and among those that are allowed; attributes are harmless."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.pieces: list[str] = []
        self.titles: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        for name, value in attrs:
            assert name in ("class", "style", "title")
            if name == "title":
                self.titles.append(value or "")
            else:
                assert "url" not in (value or "")
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    handle_decl = handle_pi = unknown_decl = handle_comment


def read(text: str) -> _Reader:
    """Read HTML that must be well-formed."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader


def _blocks(name: str) -> list[Block]:
    """Return blocks in which all text is the name: that of our own is escaped as well."""
    return [*blocks_of(name, ours=name), Prose(name)]


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "kind", range(len(_blocks(""))), ids=lambda i: type(_blocks("")[i]).__name__
)
def test_names_are_text_and_nothing_else(kind: int, name: str) -> None:
    usual = read(as_html.render([_blocks("name")[kind]]))
    text = as_html.render([_blocks(name)[kind]])
    hostile = read(text)
    is_formula = "\\" in "".join(hostile.pieces) or "$" in name
    if not is_formula:
        assert hostile.tags == usual.tags
    assert [tag for tag in hostile.tags if tag != "span"] == [t for t in usual.tags if t != "span"]
    assert all(piece in ("$", "\\") or not {*piece} & {"$", "\\"} for piece in hostile.pieces)
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_name_is_shown_as_it_is() -> None:
    shown = "".join(read(as_html.render([Paragraph("<b> & \"x\" 'y' $z")])).pieces)
    assert shown.strip() == "<b> & \"x\" 'y' $z"


def test_structure() -> None:
    assert as_html.render(STRUCTURE).splitlines() == [
        '<div class="scanopt tex2jax_ignore mathjax_ignore">',
        "<p><strong>a_b</strong>: two</p>",
        '<ul style="list-style:none">',
        '<li style="margin-left:0em"><span style="color:#2a9d4a"><span title="added">+</span>'
        '</span> first<ul style="list-style:none"><li>why</li></ul></li>',
        '<li style="margin-left:2em">second <code>x</code></li>',
        "</ul>",
        "<table>",
        '<thead><tr><th style="text-align:left">what</th>'
        '<th style="text-align:right">times</th></tr></thead>',
        "<tbody>",
        '<tr><td style="text-align:left">a|b</td><td style="text-align:right">3</td></tr>',
        "</tbody>",
        "</table>",
        '<div style="margin-left:2em">',
        "<pre>  as it is</pre>",
        "</div>",
        "<p>root</p>",
        "<ul>",
        "<li>one",
        "<ul>",
        "<li>in one",
        "</li>",
        "</ul>",
        "</li>",
        "<li>two",
        "</li>",
        "</ul>",
        '<div style="white-space:pre-wrap">*ours*</div>',
        "</div>",
    ]


def test_a_deep_tree_is_no_problem() -> None:
    tree = Tree("leaf")
    for _ in range(5000):
        tree = Tree("branch", [tree])
    assert read(as_html.render([tree])).tags.count("li") == 5000
