"""The page as a file: nothing from outside, nothing of a graph that is not data."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from scanopt_cli.page.page import Page, Section, Tone
from scanopt_cli.page.rendering import TONES, compact, render
from scanopt_cli.reports.document import Item, Paragraph, Sign, Span, Style, Table
from support.drawn_graphs import HOSTILE, page, picture, walk


class Parts(HTMLParser):
    """The tags of a page, with their attributes, and what scripts and styles hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._tag = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._tag = tag

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag in self.inside:
            self.inside[self._tag].append(data)


def hostile_page() -> Page:
    blocks = [
        Paragraph(HOSTILE),
        Item([Span(HOSTILE, Style.NAME)], sign=Sign("~", Style.GOOD, HOSTILE), notes=[HOSTILE]),
        Table((), ()),
    ]
    return Page(
        command=f"scanopt view {HOSTILE}",
        title=HOSTILE,
        verdict=HOSTILE,
        tone=Tone.BAD,
        sections=[Section(title=HOSTILE, blocks=blocks, is_open=False)],
        drawn=page(picture(walk(HOSTILE))).drawn,
    )


def test_a_page_needs_nothing_else() -> None:
    parts = Parts(render(page(picture(walk()))))
    for tag, attributes in parts.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "form", "base")
        assert not {"src", "style"} & attributes.keys()
        assert attributes.get("href", "#").startswith("#")


def test_the_policy_allows_the_script_and_the_style_of_the_page_by_their_digests() -> None:
    parts = Parts(render(page(picture(walk()))))
    (policy,) = (
        attributes["content"]
        for tag, attributes in parts.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(parts.inside[kind][-1].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_names_of_a_graph_are_text_only() -> None:
    usual, hostile = Parts(render(page(picture(walk())))), Parts(render(hostile_page()))
    added = [tag for tag, _ in hostile.tags if tag not in {tag for tag, _ in usual.tags}]
    assert set(added) <= {"ul", "li", "table", "thead", "tbody", "tr", "span"}
    assert hostile.inside["script"][-1] == usual.inside["script"][-1]
    assert not any("onerror" in attributes for _, attributes in hostile.tags)
    assert "7*7" in render(hostile_page())  # no template of a template


def test_the_picture_is_data_in_base64() -> None:
    parts = Parts(render(hostile_page()))
    graphs, layout, _ = parts.inside["script"]
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", graphs + layout)
    data = json.loads(gzip.decompress(base64.b64decode(graphs)))
    (drawn,) = data["drawn"]
    assert data["words"]["sit_sot"]["summary"].startswith("A state of which a step reads")
    names = [
        box["label"] for level in drawn["picture"]["levels"].values() for box in level["boxes"]
    ]
    assert any("onerror" in name for name in names)


def test_the_same_page_is_the_same_bytes() -> None:
    assert render(page(picture(walk()))) == render(page(picture(walk())))


def test_a_page_without_a_picture_holds_no_layout() -> None:
    assert len(render(page())) < 100_000  # the layout alone takes 630,000


@pytest.mark.parametrize("tone", Tone)
def test_a_verdict_is_told_by_a_word_as_well(tone: Tone) -> None:
    made = Page(command="scanopt check", title="x", verdict="something", tone=tone)
    assert TONES[tone] in render(made)


def test_fields_with_their_default_value_are_left_out() -> None:
    drawn = picture(walk())
    boxes = next(iter(compact(drawn)["levels"].values()))["boxes"]
    assert all(box.get("slot", 0) != -1 for box in boxes)
    assert "edges" not in boxes[0]
