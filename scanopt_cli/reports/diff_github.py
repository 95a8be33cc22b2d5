"""What differs between two graphs, as workflow commands for GitHub Actions.

The commands and their escapes are those of GitHub's documentation ("Workflow commands"); a step may
have ten annotations of a kind and a summary of 1 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence

from scanopt_cli.diff.budgets import Violation
from scanopt_cli.diff.changes import GraphDiff
from scanopt_cli.reports import diff_markdown
from scanopt_cli.reports.diff_rich import same_text, sentence
from scanopt_cli.text import printable

_MOST = 10
_SUMMARY_BYTES = 1_000_000


def workflow_commands(diff: GraphDiff, violations: Sequence[Violation] = (), *, file: str) -> str:
    """Return one ``::error`` a broken budget and one ``::warning`` a change, a line each."""
    lines = [_command("error", file, "over budget", item.text) for item in violations[:_MOST]]
    if diff.same:
        return "\n".join([*lines, printable(same_text(diff))])
    told = [
        (f"{change.kind} in {'/'.join(change.where) or 'the graph'}", sentence(change))
        for change in diff.changes
    ]
    shown = told if len(told) <= _MOST else told[: _MOST - 1]
    lines += [_command("warning", file, title, text) for title, text in shown]
    if len(shown) < len(told):
        rest = f"{len(told) - len(shown)} more changes are in the step summary"
        lines.append(_command("warning", file, "more changes", rest))
    return "\n".join(lines)


def step_summary(diff: GraphDiff, violations: Sequence[Violation] = ()) -> str:
    """Return the difference as Markdown, cut where GitHub would refuse it."""
    text = diff_markdown.render(diff, violations)
    if len(text.encode()) > _SUMMARY_BYTES:
        cut = text.encode()[:_SUMMARY_BYTES].decode(errors="ignore")
        text = f"{cut.rpartition('\n')[0]}\n- … the rest is too long for a step summary"
    return f"{text}\n"


def _command(level: str, file: str, title: str, text: str) -> str:
    return f"::{level} file={_property(file)},title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
