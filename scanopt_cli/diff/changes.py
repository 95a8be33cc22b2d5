"""What a comparison found: plain data, ready for any renderer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scanopt_cli.analysis.statistics import Statistics


class ChangeKind(StrEnum):
    """What happened to a part of the graph."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REWIRED = "rewired"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between two graphs.

    Attributes
    ----------
    kind
        ``added``, ``removed``, ``changed`` (a property, from ``before`` to ``after``), ``rewired``
        (reads ``after`` where it read ``before``) or ``renamed``.
    where
        The names of the loops around it, outermost first; a slot of a loop is inside of that loop.
    what
        The node, input, output or slot that the change is about.
    aspect
        Which property or input of it; empty if it came or went as a whole.
    before, after
        What it was and is; ``None`` where it came or went as a whole.
    details
        What else the change entails: nodes that only it needed, readers that go elsewhere.
    count
        How many equal changes this one stands for.
    """

    kind: ChangeKind
    where: tuple[str, ...]
    what: str
    aspect: str = ""
    before: str | None = None
    after: str | None = None
    details: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDiff:
    """How two graphs differ.

    Attributes
    ----------
    same
        Whether the canonical digests are equal: the graphs compute the same. Where names count,
        whether those of inputs and loops are equal, too.
    changes
        What was changed, outer graph first; nothing but renamed loops if ``same``.
    before, after
        What is in the two graphs, counted.
    digest_before, digest_after
        Canonical digests as hex strings.
    unchanged
        How many nodes of the graphs, bodies included, are the same Op applied to the same things.
    notes
        What a reader should know about how they were compared, one sentence each.
    """

    same: bool
    changes: tuple[Change, ...]
    before: Statistics
    after: Statistics
    digest_before: str
    digest_after: str
    unchanged: int = 0
    notes: tuple[str, ...] = ()

    def count(self, kind: ChangeKind) -> int:
        """Return how many changes are of ``kind``, repeated ones counted."""
        return sum(change.count for change in self.changes if change.kind is kind)
