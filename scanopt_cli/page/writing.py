"""Writes a page to a file, whole or not at all; knows the files that hold one."""

from __future__ import annotations

from pathlib import Path

from scanopt_cli.page.page import Page
from scanopt_cli.serialization.writing import write_atomically

MARK = b'<meta name="generator" content="scanopt '
"""Stands near the beginning of each page, as the template has it."""
_HEAD = 2_000


def save_page(page: Page, path: Path) -> None:
    """Write a page to ``path``.

    Raises
    ------
    ScanoptError
        If the file cannot be written.
    """
    from scanopt_cli.page.rendering import render

    # A surrogate, which a file's name may have, is no text that a file can hold.
    write_atomically(path, render(page).encode("utf-8", "backslashreplace"))


def may_replace(path: Path) -> bool:
    """Whether a page may be written to ``path``: nothing is there, an empty file or a page."""
    try:
        if path.exists() and not path.is_file():  # to read a pipe would wait for somebody
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return not head or MARK in head
