"""The signs of the changes of a diff, which make them readable without colour."""

from __future__ import annotations

from scanopt_cli.diff.changes import ChangeKind, LoopFate
from scanopt_cli.reports.document import Sign, Style

SIGNS = {
    ChangeKind.ADDED: Sign("+", Style.GOOD, "added"),
    ChangeKind.REMOVED: Sign("-", Style.BAD, "removed"),
    **{
        kind: Sign("~", Style.WARNING, kind.value, is_clear=False)
        for kind in (ChangeKind.CHANGED, ChangeKind.REWIRED, ChangeKind.RENAMED)
    },
}
"""The sign of each kind of change."""

FATES = {
    LoopFate.NEW: SIGNS[ChangeKind.ADDED],
    LoopFate.GONE: SIGNS[ChangeKind.REMOVED],
    LoopFate.MERGED: SIGNS[ChangeKind.REMOVED],
    LoopFate.REPLACED: Sign("~", Style.WARNING, "replaced", is_clear=False),
    LoopFate.CHANGED: SIGNS[ChangeKind.CHANGED],
}
"""The sign of what became of a loop."""
