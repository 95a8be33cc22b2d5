"""Every link of the README and of the pages leads somewhere: to a file, and to a heading in it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.pages import ROOT, SITE

sys.path.insert(0, str(SITE / "_ext"))
from generated_pages import INCLUDED, filled, other_tables

SOURCES = [
    ROOT / "README.md",
    *sorted((ROOT / ".github").glob("*.md")),
    *sorted(SITE.rglob("*.md")),
]
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


@cache
def text_of(path: Path) -> str:
    """A page as it is built: with what is generated, and what it includes."""
    return filled(path.read_text(encoding="utf-8"), path.parent)


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    prose = _CODE.sub("", text_of(path))
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return frozenset(
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles
    )


def links(path: Path) -> Iterator[str]:
    """Yield the links of a page that lead to files or headings of the project."""
    prose = re.sub(r"`[^`\n]*`", "", _CODE.sub("", text_of(path)))
    for target in [*_LINK.findall(prose), *_PICTURE.findall(prose)]:
        if not target.startswith(("http://", "https://", "mailto:")):
            yield target


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_resolve(path: Path) -> None:
    for link in links(path):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert ROOT in target.parents, link
        if anchor:
            assert anchor in anchors(target), link


def test_every_table_is_on_a_page_and_nothing_is_included_by_sphinx_alone() -> None:
    """GitHub has a link where the site has a table."""
    pages = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    assert not [path for path, text in pages.items() if "{include}" in text]
    included = {
        (path.parent / found).resolve()
        for path, text in pages.items()
        for found in INCLUDED.findall(text)
    }
    tables = {*(SITE / "figures" / "tables").glob("*.md")}
    others = other_tables()
    for table in tables:
        text = table.read_text(encoding="utf-8")
        assert (table in included) != (text in others), table
    assert SITE / "rules.md" in included


def test_links_are_found() -> None:
    assert sum(len([*links(path)]) for path in SOURCES) > 100
    assert "save-mem" in anchors(SITE / "reference" / "passes.md")
    assert "p001-unused-slots" in anchors(SITE / "reference" / "rules.md")


def test_the_readme_links_to_no_page_that_git_does_not_hold() -> None:
    """GitHub shows what is kept in git, where nothing is generated."""
    for link in links(ROOT / "README.md"):
        file, _, anchor = link.partition("#")
        target = ROOT / file
        if anchor and target.suffix == ".md":
            plain = target.read_text(encoding="utf-8")
            assert anchor in {
                re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                for title in re.findall(r"^#+ (.*)$", plain, re.MULTILINE)
            }
