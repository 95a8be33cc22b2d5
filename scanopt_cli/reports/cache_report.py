"""What is kept on disk for other processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scanopt_cli.reports.document import Block, Heading, Paragraph, Span, Style
from scanopt_cli.text import plural, size_text


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """What ``scanopt cache`` found, or removed.

    Attributes
    ----------
    directory
        Where the entries are.
    entries, bytes
        How many there are now, and what they take.
    limit
        How many bytes they may take; the ones not used for longest are removed beyond it.
    removed
        How many were removed.
    problem
        Why nothing is kept or read; ``None`` if it is.
    """

    directory: Path
    entries: int
    bytes: int
    limit: int
    removed: int
    problem: str | None


def cache_report(found: CacheUsage, *, cleared: bool) -> Iterator[Block]:
    """Yield what is kept, or what was removed, and why nothing is used if that is so."""
    kept = plural(found.entries, "result")
    if cleared:
        yield Heading("cache", f"removed {plural(found.removed, 'result')}")
    else:
        sizes = f"{size_text(str(found.bytes))} of at most {size_text(str(found.limit))}"
        yield Heading("cache", f"{kept}, {sizes}")
    yield Paragraph(f"in {found.directory}")
    if found.problem is not None:
        yield Paragraph(Span(f"nothing is kept or read: {found.problem}", Style.WARNING))
