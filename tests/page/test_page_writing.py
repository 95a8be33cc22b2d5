"""A page replaces an earlier page, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scanopt_cli.errors import ScanoptError
from scanopt_cli.page.page import Page
from scanopt_cli.page.writing import may_replace, save_page

PAGE = Page(command="scanopt view", title="x", verdict="y")


def test_pages_are_known(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert may_replace(path)
    path.write_bytes(b"")
    assert may_replace(path)
    save_page(PAGE, path)
    assert may_replace(path)


@pytest.mark.parametrize(
    "content",
    [b"<!doctype html><p>mine", b"import pytensor", b"\x80\x04", b"x" * 9_000 + b"scanopt "],
)
def test_other_files_are_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(content)
    assert not may_replace(path)


def test_what_is_no_file_is_no_page(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for somebody to write
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        assert not may_replace(path)


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(ScanoptError, match="cannot be written"):
        save_page(PAGE, tmp_path / "none" / "page.html")
    assert list(tmp_path.iterdir()) == []
    save_page(PAGE, tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_texts_that_no_file_can_hold_are_escaped(tmp_path: Path) -> None:
    save_page(Page(command="scanopt view", title="\udcff", verdict="y"), tmp_path / "page.html")
    assert "\\udcff" in (tmp_path / "page.html").read_text()
