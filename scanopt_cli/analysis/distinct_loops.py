"""The distinct loops among those that were reported, each with its copies, and a choice of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from scanopt_cli.analysis.inspection import Inspection, ScanReport
from scanopt_cli.errors import ScanoptError
from scanopt_cli.text import at_place, few

_NUMBER = re.compile(r"#\d+(?=/|$)")
_LISTED = 12
_FACETS: Sequence[tuple[Callable[[ScanReport], object], str]] = (
    (lambda scan: scan.path, "what they are in"),
    (lambda scan: scan.steps, "how many steps they run"),
    (lambda scan: scan.fed_digest, "what feeds them"),
)
"""What copies of a loop may differ in."""


@dataclass(slots=True)
class DistinctLoop:
    """Loops that compute the same in each step.

    Attributes
    ----------
    level
        How many loops are around the first of them.
    copies
        The loops, at least one.
    """

    level: int
    copies: list[ScanReport] = field(default_factory=list)

    @property
    def first(self) -> ScanReport:
        """The first of the copies."""
        return self.copies[0]

    @property
    def places(self) -> list[str]:
        """Where they were written, as far as that is known."""
        return list(dict.fromkeys(scan.place for scan in self.copies if scan.place))

    @property
    def differences(self) -> list[str]:
        """What the copies differ in."""
        found = [text for fact, text in _FACETS if len(set(map(fact, self.copies))) > 1]
        if len(self.places) > 1:
            found.append("where they were written")
        return found or ["who reads them"]


def distinct_loops(scans: Sequence[ScanReport]) -> list[DistinctLoop]:
    """Return the distinct ones of loops, in their order."""
    least = min((scan.depth for scan in scans), default=0)
    loops: dict[object, DistinctLoop] = {}
    for scan in scans:
        loop = loops.setdefault((scan.digest, scan.batch_ndim), DistinctLoop(scan.depth - least))
        loop.copies.append(scan)
    return list(loops.values())


def chosen(inspection: Inspection, loop: str | None = None, depth: int | None = None) -> Inspection:
    """Return an inspection of some of the loops.

    Parameters
    ----------
    inspection
        That of all loops.
    loop
        The name of a loop, those of the loops around it and its own joined by ``/``, either with or
        without numbers, or the line that wrote it, as ``41`` or ``model.py:41``. The loops in its
        body are chosen too.
    depth
        How many levels of loops there shall be: with 1, those in bodies are left out.

    Raises
    ------
    ScanoptError
        If there is no such loop.
    """
    scans = inspection.scans
    if loop is not None:
        tops = loops_called(scans, loop)
        paths = {(*scan.path, scan.name) for scan in tops}
        scans = tuple(
            scan
            for scan in scans
            for path in [(*scan.path, scan.name)]
            if any(path[:n] in paths for n in range(1, len(path) + 1))
        )
    if depth is not None:
        least = min((scan.depth for scan in scans), default=0)
        scans = tuple(scan for scan in scans if scan.depth < least + depth)
    return replace(inspection, scans=scans)


class HasPlace(Protocol):
    """What can be called by its name, by that after those around it, and by its place."""

    @property
    def name(self) -> str:
        """Its own name."""
        ...

    @property
    def title(self) -> str:
        """Its name after those around it, joined by ``/``."""
        ...

    @property
    def place(self) -> str | None:
        """Where it was written, if that is known."""
        ...


def loops_called[L: HasPlace](loops: Sequence[L], text: str) -> list[L]:
    """Return the loops that a user may mean by ``text``; see `chosen`.

    Raises
    ------
    ScanoptError
        If there is no such loop.
    """
    meanings: tuple[Callable[[L], bool], ...] = (
        lambda loop: loop.title == text,
        lambda loop: loop.name == text,
        lambda loop: text in (_NUMBER.sub("", loop.title), _NUMBER.sub("", loop.name)),
        lambda loop: _is_at(loop, text),
    )
    for means in meanings:
        found = [loop for loop in loops if means(loop)]
        if found:
            return found
    names = [f"{loop.title}{at_place(loop.place)}" for loop in loops]
    known = f"loops: {few(names, _LISTED)}" if names else "there is none at all"
    raise ScanoptError(f"there is no loop {text!r}", where="--loop", hint=known)


def _is_at(scan: HasPlace, text: str) -> bool:
    """Whether a loop was written at a place: ``41``, ``model.py:41``, or the whole of it."""
    file, colon, rest = (scan.place or "").rpartition(":")
    number = rest.partition(" ")[0]
    place = f"{file}:{number}"
    return bool(colon) and (text in (scan.place, place, number) or place.endswith(f"/{text}"))
