"""Graph files beside what they were earlier: what became of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scanopt_cli.diff.budgets import Violation
from scanopt_cli.diff.changes import GraphDiff


class FileFate(StrEnum):
    """What became of a graph file."""

    SAME = "same"
    DIFFERS = "differs"
    NEW = "new"
    RENAMED = "renamed"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """A graph file beside what it was.

    Attributes
    ----------
    source
        Its path; of one that is gone, what it was.
    fate
        What became of it. A file of another form is the same if its graph is.
    earlier
        The path that it had, if it was renamed.
    diff
        How the graphs differ, if there are two and it was not enough to compare the bytes.
    violations
        The budgets that it breaks.
    """

    source: str
    fate: FileFate
    earlier: str | None = None
    diff: GraphDiff | None = None
    violations: tuple[Violation, ...] = ()

    @property
    def is_other(self) -> bool:
        """Whether there is another graph, or none, or one where there was none."""
        return self.fate not in (FileFate.SAME, FileFate.RENAMED)
