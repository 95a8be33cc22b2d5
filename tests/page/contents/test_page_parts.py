"""A page of one graph, or of several, some of which could not be handled."""

from __future__ import annotations

import pytest

from scanopt_cli.page.contents.parts import Part, page_of, worst
from scanopt_cli.page.page import Section, Tone
from scanopt_cli.reports.as_rich import plain
from scanopt_cli.reports.document import Paragraph


def part(source: str, tone: Tone = Tone.NEUTRAL) -> Part:
    sections = [Section(title=each, blocks=[Paragraph(f"{each} text")]) for each in ("One", "Two")]
    return Part(source=source, verdict=f"verdict on {source}", tone=tone, sections=sections)


def test_one_graph_is_the_page() -> None:
    page = page_of("scanopt check a.pkl", [part("a.pkl", Tone.BAD)])
    assert (page.title, page.verdict, page.tone) == ("a.pkl", "verdict on a.pkl", Tone.BAD)
    assert [section.title for section in page.sections] == ["One", "Two"]
    assert all(section.is_open for section in page.sections)


def test_several_graphs_begin_with_a_table_of_verdicts() -> None:
    parts = [part("a.pkl", Tone.GOOD), part("b.pkl", Tone.WARNING)]
    page = page_of("scanopt check", parts, verdict="1 finding in 2 graphs")
    assert page.title == "a.pkl and b.pkl"
    assert (page.verdict, page.tone) == ("1 finding in 2 graphs", Tone.WARNING)
    first, *others = page.sections
    assert "verdict on b.pkl" in plain(first.blocks)
    # Of what is bad, the first section is open.
    assert [(each.title, each.is_open) for each in others] == [
        ("a.pkl: One", False),
        ("a.pkl: Two", False),
        ("b.pkl: One", True),
        ("b.pkl: Two", False),
    ]


def test_graphs_that_could_not_be_handled_are_listed_with_their_errors() -> None:
    page = page_of("scanopt view", [part("a.pkl")], failures={"bad.pkl": "bad.pkl: is cut short"})
    assert page.tone is Tone.BAD
    assert "1 graph could not be handled" in page.verdict
    assert "is cut short" in plain(page.sections[0].blocks)


@pytest.mark.parametrize("name", ["a\u202eb", "a\nb", "a\x1b[31mb", "\udcff"])
def test_titles_hide_no_characters(name: str) -> None:
    page = page_of(f"scanopt view {name}", [part(name), part(name)], verdict=name)
    titles = [page.command, page.title, page.verdict, *(each.title for each in page.sections)]
    assert all(title.isprintable() for title in titles)
    assert page.title.startswith(("a\\", "\\u"))


def test_the_worst_tone_counts() -> None:
    assert worst([Tone.GOOD, Tone.NEUTRAL]) is Tone.NEUTRAL
    assert worst([Tone.GOOD, Tone.WARNING, Tone.BAD]) is Tone.BAD
    assert worst([]) is Tone.NEUTRAL
