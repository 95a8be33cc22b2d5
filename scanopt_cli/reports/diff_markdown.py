"""The differences between two graphs, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from scanopt_cli.diff.budgets import Violation
from scanopt_cli.diff.changes import GraphDiff
from scanopt_cli.reports.change_text import note_texts, same_text, sentence
from scanopt_cli.reports.diff_rich import SIGNS, categories
from scanopt_cli.text import markdown


def render(diff: GraphDiff, violations: Sequence[Violation] = (), *, stat: bool = False) -> str:
    """Return lists of the changes by loop (with ``stat``, of counts) and of broken budgets."""
    verdict = same_text(diff) if diff.same else "the graphs differ"
    lines = [f"{markdown(verdict[0].upper() + verdict[1:])}.", ""]
    if stat and not diff.same:
        lines += [f"- {category}: {count}" for category, count in categories(diff).items()]
    elif not diff.same:
        lines += _changes(diff)
    if diff.notes:
        lines += ["", *(f"Note: {markdown(note)}." for note in diff.notes)]
    if violations:
        lines += ["", "Over budget:", ""]
        lines += [f"- {markdown(violation.text)}" for violation in violations]
    return "\n".join(lines).rstrip()


def _changes(diff: GraphDiff) -> Iterator[str]:
    for where, changes in groupby(diff.changes, key=lambda change: change.where):
        if where:
            yield from ("", f"In {markdown(' / '.join(where))}:", "")
        for change in changes:
            yield f"- `{SIGNS[change.kind]}` {change.kind} {markdown(sentence(change))}"
            yield from (f"  - {markdown(note)}" for note in note_texts(change))
