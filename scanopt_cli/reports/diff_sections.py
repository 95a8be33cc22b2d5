"""The changes of a diff in sections: inputs and outputs, each loop, and the rest of the graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scanopt_cli.diff.changes import Change, GraphDiff, LoopChange, LoopFate, SubjectKind
from scanopt_cli.diff.labels import holder_text

_ENDS = (SubjectKind.INPUT, SubjectKind.OUTPUT, SubjectKind.INPUTS, SubjectKind.OUTPUTS)

type Place = tuple[tuple[str, ...], str]
"""The names of the loops around a loop, and its own name."""


@dataclass(slots=True)
class Section:
    """Changes that belong together.

    Attributes
    ----------
    loops
        The loop that they are of, or several that were merged into one.
    where
        The names of the loops and graphs in whose bodies they are, if there is no such loop.
    itself
        The change that is the loop being added or removed.
    slots
        Changes of the loop itself: its slots, its steps and its options.
    inside
        Changes of its body, or of the graph.
    """

    loops: tuple[LoopChange, ...] = ()
    where: tuple[str, ...] = ()
    itself: list[Change] = field(default_factory=list)
    slots: list[Change] = field(default_factory=list)
    inside: list[Change] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sections:
    """A diff: changes of inputs and outputs, of each loop, in other bodies, and of the rest."""

    ends: tuple[Change, ...]
    loops: tuple[Section, ...]
    others: tuple[Section, ...]
    rest: Section


def sections(diff: GraphDiff) -> Sections:
    """Sort the changes of a diff into sections; each is in one."""
    loops = _of_loops(diff.loops)
    by_subject: dict[Place, Section] = {}
    by_path: dict[tuple[str, ...], Section] = {}
    for section in loops:
        for loop in section.loops:
            by_subject.setdefault((loop.path, holder_text(loop.design, loop.name)), section)
            if loop.fate in (LoopFate.CHANGED, LoopFate.REPLACED) and loop.into is not None:
                after = holder_text(loop.into_design or loop.design, loop.into)
                by_subject.setdefault((loop.path, after), section)
            by_path.setdefault((*loop.path, loop.name), section)
    ends, rest, others = [], Section(), dict[tuple[str, ...], Section]()
    for change in diff.changes:
        subject = change.subject
        of_loop = by_subject.get((change.where, subject.op))
        if not change.where and subject.kind in _ENDS:
            ends.append(change)
        elif of_loop is not None and subject.kind is SubjectKind.NODE and not change.aspect:
            of_loop.itself.append(change)
        elif of_loop is not None and subject.kind in (SubjectKind.SLOT, SubjectKind.NODE):
            of_loop.slots.append(change)
        elif change.where in by_path:
            by_path[change.where].inside.append(change)
        elif change.where:
            others.setdefault(change.where, Section(where=change.where)).inside.append(change)
        else:
            rest.inside.append(change)
    return Sections(tuple(ends), loops, tuple(others.values()), rest)


def _of_loops(loops: Iterable[LoopChange]) -> tuple[Section, ...]:
    """Return a section for each loop; those of one place that were merged into one share one."""
    found: list[Section] = []
    merged: dict[tuple[object, ...], Section] = {}
    for loop in loops:
        key = (loop.path, loop.place, loop.design, loop.into)
        if loop.fate is not LoopFate.MERGED:
            found.append(Section(loops=(loop,)))
        elif key in merged:
            merged[key].loops += (loop,)
        else:
            merged[key] = Section(loops=(loop,))
            found.append(merged[key])
    return tuple(found)
