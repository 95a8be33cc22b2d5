"""The result of a comparison as plain data, for any renderer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.facts import Fact
from scanopt_cli.presentation import Presented


class ChangeKind(StrEnum):
    """What happened to a part of the graph."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REWIRED = "rewired"
    RENAMED = "renamed"


ONLY_IN = (ChangeKind.REMOVED, ChangeKind.ADDED)
"""What happened to a part that only the graph before has, or only the one after."""


class SubjectKind(StrEnum):
    """The parts of a graph that a change may be about."""

    NODE = "node"
    NODE_INPUT = "node-input"
    SLOT = "slot"
    INPUT = "input"
    OUTPUT = "output"
    INPUTS = "inputs"
    OUTPUTS = "outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a change is about.

    Attributes
    ----------
    kind
        A node, one of its inputs, a slot of a Scan, or an input or output of the graph, or all.
    op, operands
        The Op of the node, with the name of its loop or graph, and its operands as expressions.
    place
        The position of the input or output.
    slot
        The kind of the slot, with its name; ``step count`` for the number of steps.
    variable
        The input or output as an expression.
    """

    kind: SubjectKind = SubjectKind.NODE
    op: str = ""
    operands: str = ""
    place: int | None = None
    slot: str = ""
    variable: str = ""

    @property
    def node(self) -> str:
        """The node with its operands: ``Subtensor[::-1] of xs``."""
        return f"{self.op} of {self.operands}" if self.operands else self.op

    def short(self) -> Subject:
        """Return the subject without the operands of its node."""
        return replace(self, operands="")

    def of(self, kind: SubjectKind, **more: Any) -> Subject:
        """Return an input or slot of this node."""
        return replace(self, kind=kind, **more)


class Note(StrEnum):
    """What else is known of a change."""

    ALSO = "also"
    ANOTHER_OBJECT = "another-object"
    ENTRIES = "entries"
    MORE_READERS = "more-readers"
    NODES_INSIDE = "nodes-inside"
    NO_TEXT = "no-text"
    PRINTED_ALIKE = "printed-alike"
    READS_INSTEAD = "reads-instead"
    READS_IT = "reads-it"
    TYPE = "type"
    WITH = "with"
    WITH_INSIDE = "with-inside"
    WITHOUT = "without"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Change(Presented):
    """One difference between two graphs.

    Attributes
    ----------
    kind
        ``added``, ``removed``, ``changed`` (a property, from ``before`` to ``after``), ``rewired``
        (reads ``after`` where it read ``before``) or ``renamed``.
    where
        The names of the loops in whose bodies it is, outermost first. A change of a slot is where
        its loop is, not inside of it.
    subject
        The node, input, output or slot that the change is about.
    aspect
        The property or input that changed; empty if no single one did.
    before, after
        The old and the new value; ``None`` for an addition or removal, or if no text shows it.
    notes
        What else the change entails: nodes that only it needed, readers that now read another node.
    count
        How many equal changes this one stands for.
    """

    kind: ChangeKind
    where: tuple[str, ...] = ()
    subject: Subject
    aspect: str = ""
    before: str | None = None
    after: str | None = None
    notes: tuple[Fact, ...] = ()
    count: int = 1

    @classmethod
    def of_property(
        cls,
        subject: Subject,
        aspect: str = "",
        before: str | None = None,
        after: str | None = None,
        *notes: Fact,
    ) -> Change:
        """Return the change of a property: its two texts or, where none shows it, notes."""
        return cls(
            kind=ChangeKind.CHANGED,
            subject=subject,
            aspect=aspect,
            before=before,
            after=after,
            notes=notes,
        )


COUNTS = ("added", "removed", "changed")
"""The attributes of a `LoopChange` that count changes."""


class LoopFate(StrEnum):
    """What became of a loop."""

    NEW = "new"
    GONE = "gone"
    MERGED = "merged"
    REPLACED = "replaced"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopChange:
    """One loop that is not in both graphs as it was.

    Attributes
    ----------
    fate
        ``new``, ``gone``, ``merged`` (another loop computes what it computed), ``replaced`` (a
        new loop does, in its place alone) or ``changed``.
    path
        The names of the loops and graphs around it, outermost first.
    name, design
        Its name, and whether it is a Scan or a TracedLoop.
    place
        Where it was written: ``model.py:41 in step``; ``None`` if not known.
    into, into_design
        The loop that computes what this one did, if it was merged or replaced; the new name, if a
        changed loop was renamed.
    of
        For a new loop: the loops that were merged into it.
    times
        How many loops this stands for: loops of equal bodies around it.
    copies
        How many equal loops there are in the graph before, and in the one after.
    added, removed, changed
        How many changes there are of its slots and its body, without those of loops inside of it.
    nodes, nodes_after
        How many nodes are in its body, in the graph before and in the one after.
    buffers, buffers_after
        The bytes of its buffers, as formulas.
    """

    fate: LoopFate
    path: tuple[str, ...] = ()
    name: str
    design: str = "Scan"
    place: str | None = None
    into: str | None = None
    into_design: str | None = None
    of: tuple[str, ...] = ()
    times: int = 1
    copies: tuple[int, int] = (1, 1)
    added: int = 0
    removed: int = 0
    changed: int = 0
    nodes: int = 0
    nodes_after: int = 0
    buffers: str = "0"
    buffers_after: str = "0"

    @property
    def title(self) -> str:
        """The name after those of the loops around it, joined by ``/``."""
        return "/".join((*self.path, self.name))

    @property
    def changes(self) -> int:
        """How many changes there are of it."""
        return self.added + self.removed + self.changed

    def times_inside(self, path: tuple[str, ...], times: int) -> LoopChange:
        """Return what this is of loops in ``times`` bodies, the first of which is at ``path``."""
        counts = {name: getattr(self, name) * times for name in COUNTS}
        return replace(self, path=path, times=self.times * times, **counts)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GraphDiff(Presented):
    """How two graphs differ.

    Attributes
    ----------
    same
        Whether the canonical digests are equal: the graphs compute the same. If names count,
        the names of inputs and loops must be equal, too.
    changes
        The changes, the outer graph first; only renamed loops if ``same``.
    loops
        The loops that are new, gone, merged, replaced or changed, each before those inside of it.
    before, after
        The counts of the two graphs.
    digest_before, digest_after
        Canonical digests as hex strings.
    unchanged
        How many nodes, bodies included, apply the same Op to the same inputs in both graphs.
    notes
        Caveats of the comparison, one sentence each.
    """

    same: bool
    changes: tuple[Change, ...]
    loops: tuple[LoopChange, ...] = ()
    before: Statistics
    after: Statistics
    digest_before: str
    digest_after: str
    unchanged: int = 0
    notes: tuple[str, ...] = ()

    def count(self, kind: ChangeKind) -> int:
        """Return how many changes are of ``kind``, counting each as often as it occurs."""
        return total(change for change in self.changes if change.kind is kind)


def total(changes: Iterable[Change]) -> int:
    """Return how many changes there are, each counted as often as it occurs."""
    return sum(change.count for change in changes)
