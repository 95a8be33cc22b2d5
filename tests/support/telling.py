"""Short ways to ask for the changes between two graphs."""

from __future__ import annotations

from scanopt_cli.diff.changes import Change, ChangeKind
from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import GraphLike
from scanopt_cli.reports.change_text import note_texts, subject_text

ADDED, REMOVED, CHANGED = ChangeKind.ADDED, ChangeKind.REMOVED, ChangeKind.CHANGED
REWIRED, RENAMED = ChangeKind.REWIRED, ChangeKind.RENAMED


def changes(before: GraphLike, after: GraphLike, *, names: bool = False) -> tuple[Change, ...]:
    return diff(before, after, names=names).changes


def only_change(before: GraphLike, after: GraphLike, *, names: bool = False) -> Change:
    (change,) = changes(before, after, names=names)
    return change


def property_of(change: Change) -> tuple[str, str, str | None, str | None]:
    return what_of(change), change.aspect, change.before, change.after


def what_of(change: Change) -> str:
    return subject_text(change.subject)


def notes_of(change: Change) -> tuple[str, ...]:
    return tuple(note_texts(change))
