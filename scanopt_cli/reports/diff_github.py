"""The differences between two graphs, as workflow commands for GitHub Actions.

A step may have ten annotations of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scanopt_cli.diff.budgets import Violation
from scanopt_cli.diff.changes import Change, GraphDiff
from scanopt_cli.diff.labels import holder_text
from scanopt_cli.reports.change_text import same_text, sentence
from scanopt_cli.reports.loop_text import headline
from scanopt_cli.reports.workflow import command
from scanopt_cli.text import at_place, printable

_MOST = 10


def workflow_commands(diff: GraphDiff, violations: Sequence[Violation] = (), *, file: str) -> str:
    """Return an ``::error`` line for each broken budget and a ``::warning`` line for each change.

    Between them is the headline, as a ``::notice``. There are at most ten lines of each kind; the
    last warning then counts the remaining changes.
    """
    lines = [command("error", file, "over budget", item.text) for item in violations[:_MOST]]
    if diff.same:
        return "\n".join([*lines, printable(same_text(diff))])
    lines.append(command("notice", file, "the graphs differ", headline(diff)))
    places = _places(diff)
    warnings = [
        (f"{change.kind} in {_where(change, places)}", sentence(change)) for change in diff.changes
    ]
    shown = warnings if len(warnings) <= _MOST else warnings[: _MOST - 1]
    lines += [command("warning", file, title, text) for title, text in shown]
    if len(shown) < len(warnings):
        rest = f"{len(warnings) - len(shown)} more changes are in the step summary"
        lines.append(command("warning", file, "more changes", rest))
    return "\n".join(lines)


type _Places = Mapping[tuple[str, ...], str]


def _places(diff: GraphDiff) -> _Places:
    """Return where loops were written, by their names: what changes in them, and their slots."""
    found = {}
    for loop in diff.loops:
        if loop.place is not None:
            found[*loop.path, loop.name] = loop.place
            found[*loop.path, holder_text(loop.design, loop.name)] = loop.place
    return found


def _where(change: Change, places: _Places) -> str:
    """Return the loop that a change is in, or the graph, and where the loop was written."""
    place = places.get(change.where) or places.get((*change.where, change.subject.op))
    name = "/".join(change.where) or "the graph"
    return f"{name}{at_place(place)}"
