"""How graphs are now, beside what is locked, and what of that is worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version

from scanopt_cli.gates.lock_file import LockedFinding, LockedGraph
from scanopt_cli.version import __version__

LIMITED = ("scans", "loops", "outer_nodes", "inner_nodes", "buffer_bytes")
"""Counts that may not be more than when the graph was locked, unless a budget says otherwise."""

_DIGEST_LETTERS = 16
"""How many letters the digest of a loop has in the key of a finding; a slot's place has fewer."""


class State(StrEnum):
    """How a graph is now, beside what is locked."""

    UNCHANGED = "unchanged"
    """The file has the same bytes."""
    SAME = "same"
    """The file has other bytes, and the graph computes the same."""
    CHANGED = "changed"
    NEW = "new"
    """It is not locked."""
    MISSING = "missing"
    """It is locked, and there is no such file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountChange:
    """A count that is another one than is locked, or over its ``limit``, if it has one."""

    count: str
    locked: int
    now: int
    limit: int | None

    @property
    def is_worse(self) -> bool:
        """Whether it is over the limit."""
        return self.limit is not None and self.now > self.limit

    @property
    def is_better(self) -> bool:
        """Whether less is counted of what has a limit."""
        return self.limit is not None and self.now < self.locked


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStatus:
    """How a graph is now, beside what is locked.

    Attributes
    ----------
    source
        Its path.
    state
        Whether there is such a file, and whether it is as it was.
    counts
        What is counted that is different.
    found, gone
        Findings that are not locked, and those that are and that there are no more.
    by
        The versions that locked it.
    """

    source: str
    state: State
    counts: tuple[CountChange, ...] = ()
    found: tuple[LockedFinding, ...] = ()
    gone: tuple[LockedFinding, ...] = ()
    by: str | None = None

    @property
    def is_worse(self) -> bool:
        """Whether it is worse than what is locked: also if only one of both is there."""
        return (
            self.state in (State.NEW, State.MISSING)
            or bool(self.found)
            or any(change.is_worse for change in self.counts)
        )

    @property
    def is_better(self) -> bool:
        """Whether it is better, and not worse."""
        better = bool(self.gone) or any(change.is_better for change in self.counts)
        return better and not self.is_worse


def status_of(
    source: str,
    locked: LockedGraph | None,
    now: LockedGraph | None,
    budget: Mapping[str, int] | None = None,
) -> GraphStatus:
    """Return how a graph is ``now`` beside what is ``locked``: one of both may be missing.

    A count may be what is locked at most; a ``budget`` of all graphs gives other limits, and that
    of the graph itself comes first.
    """
    if now is None:
        by = None if locked is None else locked.by
        return GraphStatus(source=source, state=State.MISSING, by=by)
    limits = {**({} if budget is None else budget)}
    if locked is not None:
        limits = {name: locked.counts.get(name, 0) for name in LIMITED} | limits
        limits |= locked.budget
    before = now if locked is None else locked
    names = dict.fromkeys((*before.counts, *now.counts, *limits))
    changes = (
        CountChange(
            count=name,
            locked=before.counts.get(name, 0),
            now=now.counts.get(name, 0),
            limit=limits.get(name),
        )
        for name in names
    )
    known = () if locked is None else locked.findings
    state = _state(locked, now)
    key = _of_loop if state is State.SAME else _of_slots
    found, gone = _more(now.findings, known, key), _more(known, now.findings, key)
    return GraphStatus(
        source=source,
        state=state,
        counts=tuple(each for each in changes if each.now != each.locked or each.is_worse),
        # A loop that changed has another digest, and may have the same findings.
        found=_more(found, gone, _of_name),
        gone=_more(gone, found, _of_name),
        by=None if locked is None else locked.by,
    )


def _state(locked: LockedGraph | None, now: LockedGraph) -> State:
    if locked is None:
        return State.NEW
    if locked.sha256 == now.sha256:
        return State.UNCHANGED
    return State.SAME if now.digest is not None and now.digest == locked.digest else State.CHANGED


def _more(
    findings: Sequence[LockedFinding],
    others: Iterable[LockedFinding],
    key: Callable[[LockedFinding], str],
) -> tuple[LockedFinding, ...]:
    """Return the findings that are not among the others, each as often as they have it."""
    left = Counter(map(key, others))
    found = []
    for each in findings:
        left[key(each)] -= 1
        if left[key(each)] < 0:
            found.append(each)
    return tuple(found)


def _of_slots(found: LockedFinding) -> str:
    return found.key


def _of_loop(found: LockedFinding) -> str:
    """Return what identifies a finding but for its slots.

    Of equal slots a rule names one, which in another form of the same graph may be another.
    """
    first, *parts = found.key.split(":")
    return ":".join([first, *(part for part in parts if len(part) == _DIGEST_LETTERS)])


def _of_name(found: LockedFinding) -> str:
    """Return the rule, and what the loop is called; equal names are told apart by numbers."""
    return f"{found.rule}:{found.loop.partition('#')[0]}"


def written_by() -> str:
    """Return the versions that find what is locked: ``scanopt 0.1.0, PyTensor 3.3.7``."""
    try:
        installed = version("pytensor")
    except PackageNotFoundError:
        installed = "of unknown version"
    return f"scanopt {__version__}, PyTensor {installed}"
