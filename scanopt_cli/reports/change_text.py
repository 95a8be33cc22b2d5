"""The text of the changes of a diff: one place for each kind of subject and note."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scanopt_cli.diff.changes import Change, GraphDiff, Note, Subject, SubjectKind
from scanopt_cli.facts import Fact
from scanopt_cli.reports.wording import worded
from scanopt_cli.text import few, plural

SUBJECTS: Mapping[SubjectKind, str] = {
    SubjectKind.NODE: "{node}",
    SubjectKind.NODE_INPUT: "input {place} of {node}",
    SubjectKind.SLOT: "{slot} of {node}",
    SubjectKind.INPUT: "input {variable!q}",
    SubjectKind.OUTPUT: "output {place}",
    SubjectKind.INPUTS: "inputs",
    SubjectKind.OUTPUTS: "outputs",
}

NOTES: Mapping[Note, str] = {
    Note.ALSO: "also {subjects}",
    Note.ANOTHER_OBJECT: "is another {type}",
    Note.ENTRIES: "{count} of {size} entries differ, first [{index}]: {before} → {after}",
    Note.MORE_READERS: "and {count} more",
    Note.NODES_INSIDE: "{nodes:node} inside",
    Note.NO_TEXT: "differs in a way that has no short text",
    Note.PRINTED_ALIKE: "different, though printed alike",
    Note.READS_INSTEAD: "{reader} reads {variable} instead",
    Note.READS_IT: "{reader} reads it instead of {variable}",
    Note.TYPE: "{type}",
    Note.WITH: "with {nodes}",
    Note.WITH_INSIDE: "with {nodes} inside",
    Note.WITHOUT: "without {nodes}",
}

# Notes that stand in the line of the change, in place of values.
_INLINE = (Note.ANOTHER_OBJECT, Note.NO_TEXT)
# How many Ops a count of nodes names, and how many new names of loops one line shows.
_OPS = 4
_NAMED = 2


def subject_text(subject: Subject) -> str:
    """Return what a change is about: ``input 1 of Add of x, y``.

    A slot is alone, if the subject does not say of which loop.
    """
    fields = {"node": subject.node, "place": subject.place, "slot": subject.slot}
    if subject.kind is SubjectKind.SLOT and not subject.op:
        return subject.slot
    text = worded(SUBJECTS[subject.kind], {**fields, "variable": subject.variable})
    is_shown = subject.variable and subject.kind is not SubjectKind.INPUT
    return f"{text}: {subject.variable}" if is_shown else text


def sentence(change: Change) -> str:
    """Return a change as one line, without its sign and its notes."""
    text = subject_text(change.subject)
    text = ": ".join(part for part in (text, change.aspect) if part)
    inline = [_note(change, note) for note in change.notes if note.code in _INLINE]
    if inline:
        text += f"{'' if change.aspect else ':'} {' '.join(inline)}"
    elif change.before is not None and change.after is not None:
        text += f": {change.before} → {change.after}"
    elif change.aspect:
        text += " differs"
    times = f" ({change.count} times)" if change.count > 1 else ""
    return f"{text}{times}"


def note_texts(change: Change) -> list[str]:
    """Return the notes of a change, a line each."""
    return [_note(change, note) for note in change.notes if note.code not in _INLINE]


def same_text(diff: GraphDiff) -> str:
    """Return one line for two graphs that are the same, with their renamed loops, if any."""
    renamed = [f"{subject_text(change.subject)} is now `{change.after}`" for change in diff.changes]
    if not renamed:
        return "the graphs are the same"
    return f"the graphs are the same, but for names: {few(renamed, _NAMED)}"


def _note(change: Change, note: Fact) -> str:
    fields: dict[str, Any] = dict(note.fields)
    match note.code:
        case Note.ALSO:
            fields["subjects"] = _others(change.subject, **note.fields)
        case Note.WITH | Note.WITH_INSIDE | Note.WITHOUT:
            fields["nodes"] = _counts(note.fields["nodes"])
        case Note.READS_INSTEAD | Note.READS_IT:
            fields["reader"] = subject_text(note.fields["reader"])
    return worded(NOTES[Note(note.code)], fields)


def _others(first: Subject, subjects: tuple[Subject, ...], more: int) -> str:
    """Return other places of a change; the same slot of several loops is named only once."""
    texts = [subject_text(subject) for subject in subjects]
    if first.slot and {(subject.kind, subject.slot) for subject in subjects} == {
        (SubjectKind.SLOT, first.slot)
    }:
        texts = [subject.op for subject in subjects]
        texts[0] = f"of {texts[0]}"
    return ", ".join([*texts, *([f"{more} more"] if more else [])])


def _counts(nodes: tuple[tuple[str, int], ...]) -> str:
    """Return ``4 nodes (2 Mul, Add, Exp)``."""
    parts = [op if count == 1 else f"{count} {op}" for op, count in nodes[:_OPS]]
    more = ", …" if len(nodes) > _OPS else ""
    return f"{plural(sum(count for _, count in nodes), 'node')} ({', '.join(parts)}{more})"
