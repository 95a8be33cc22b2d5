"""Each pass's change to a graph, collected while a pipeline runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.diff.comparing import diff
from scanopt_cli.diff.trees import DiffLine, LineKind, tree_diff
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.optimizing import Snapshot
from scanopt_cli.reports import diff_rich
from scanopt_cli.text import plural, printable

_STYLES = {
    LineKind.ADDED: ("+", "green"),
    LineKind.REMOVED: ("-", "red"),
    LineKind.HUNK: ("", "cyan"),
    LineKind.CONTEXT: (" ", ""),
}


class Changes:
    """Collects one section for each change that a pass makes to a graph.

    ``structural`` shows a diff of matched graphs in place of dprint trees. ``depth`` limits the
    depth of the trees, ``lines`` the length of a section (0 for no limit). With ``print_to``, each
    section is also printed at once.
    """

    def __init__(
        self, graph: Graph, *, structural: bool, depth: int | None = None, lines: int = 0
    ) -> None:
        self.sections: list[RenderableType] = []
        self.print_to: Console | None = None
        self._before = graph
        self._structural = structural
        self._depth = depth
        self._lines = lines

    def add(self, snapshot: Snapshot) -> None:
        """Add a section for the graph after a pass has changed it."""
        section = Group(
            Text.assemble("after ", (snapshot.pass_name, "bold")), self._body(snapshot.graph), ""
        )
        self._before = snapshot.graph
        self.sections.append(section)
        if self.print_to is not None:
            self.print_to.print(section)

    def _body(self, after: Graph) -> RenderableType:
        if digest(self._before) == digest(after):
            # Only the sharing of nodes differs: trees would show changes that do not matter.
            before, now = statistics(self._before.fgraph), statistics(after.fgraph)
            return Text(
                "the same computation, of fewer nodes: "
                f"{before.outer_nodes} → {now.outer_nodes} outside, "
                f"{before.inner_nodes} → {now.inner_nodes} inside"
            )
        if self._structural:
            return diff_rich.render(diff(self._before, after), lines=self._lines)
        return tree_text(tree_diff(self._before.fgraph, after.fgraph, self._depth), self._lines)


def tree_text(lines: Sequence[DiffLine], most: int = 0) -> Text:
    """Return a diff of dprint trees, cut after ``most`` lines (0 for no limit)."""
    shown = lines[:most] if most else lines
    text = Text("\n", no_wrap=True, overflow="ellipsis").join(_line(line) for line in shown)
    text.no_wrap, text.overflow = True, "ellipsis"
    if len(shown) < len(lines):
        more = plural(len(lines) - len(shown), "more line")
        text.append(f"\n… {more}; --lines 0 shows all", "dim")
    return text


def _line(line: DiffLine) -> Text:
    sign, style = _STYLES[line.kind]
    return Text(f"{sign}{printable(line.text)}", style=style)
