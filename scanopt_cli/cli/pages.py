"""Pages of HTML: where they may go, checked before any work is done, and how they are written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from scanopt_cli.cli.console import tell
from scanopt_cli.cli.targets import is_same_file, require_target
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from scanopt_cli.page.contents.parts import Part

_typed: ContextVar[Sequence[str]] = ContextVar("typed", default=())


def remember_command(arguments: Sequence[str]) -> None:
    """Remember what was typed after ``scanopt``, for the pages of this run."""
    _typed.set(tuple(arguments))


def require_page(
    page: Path | None,
    graphs: Iterable[Path],
    others: Iterable[tuple[str, Path | None]] = (),
    *,
    option: str = "--html",
) -> None:
    """Check that a page may be written to ``page``, which ``option`` names, if any does.

    Other files that the command writes are ``others``, each with the option that names it.

    Raises
    ------
    ScanoptError
        If its directory does not exist, it is a directory, a graph or one of the ``others``, or
        there is a file that is no page of scanopt's.
    """
    if page is None:
        return
    from scanopt_cli.page.writing import may_replace

    where = f"{option} {page}".strip()
    for graph in graphs:
        if is_same_file(page, graph):
            raise ScanoptError("would be overwritten", where=str(graph), hint="write elsewhere")
        require_target(page, graph, force=False, option=option)
    hint = "give another name" if option else "name the page by -o PAGE"
    for name, other in others:
        if other is not None and os.path.realpath(other) == os.path.realpath(page):
            raise ScanoptError(f"is what {name} writes", where=where, hint=hint)
    if not may_replace(page):
        why = "is no page of scanopt's, and would be overwritten"
        raise ScanoptError(why, where=where, hint=hint)


def write_page(
    page: Path,
    parts: Sequence[Part],
    failures: Mapping[Path, str] | None = None,
    *,
    verdict: str = "",
) -> None:
    """Write the page of what a command found in graphs, and say so.

    The ``failures`` of graphs that could not be handled are listed. If there are no others, no page
    is written.

    Raises
    ------
    ScanoptError
        If it cannot be written.
    """
    from scanopt_cli.page.contents.parts import page_of
    from scanopt_cli.page.writing import save_page

    if not parts:
        return
    failed = {str(path): error for path, error in (failures or {}).items()}
    command = join(["scanopt", *_typed.get()])
    save_page(page_of(command, parts, verdict=verdict, failures=failed), page)
    tell(f"wrote {page}")
