"""Each pass's change to a graph, collected while a pipeline runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.diff.comparing import diff
from scanopt_cli.diff.trees import DiffLine, LineKind, tree_diff
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.optimizing import Snapshot
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.document import Block, Paragraph, Preformatted, Span, Style
from scanopt_cli.text import plural

_SIGNS = {
    LineKind.ADDED: ("+", Style.GOOD),
    LineKind.REMOVED: ("-", Style.BAD),
    LineKind.HUNK: ("", Style.NAME),
    LineKind.CONTEXT: (" ", Style.PLAIN),
}


class Changes:
    """Collects one section for each change that a pass makes to a graph.

    ``structural`` shows a diff of matched graphs in place of dprint trees. ``depth`` limits the
    depth of the trees, ``lines`` the length of a section (0 for no limit). With ``print_now``, each
    section is also printed at once.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        structural: bool,
        depth: int | None = None,
        lines: int = 0,
        print_now: Callable[[Iterable[Block]], None] | None = None,
    ) -> None:
        self.blocks: list[Block] = []
        self._before = graph
        self._structural = structural
        self._depth = depth
        self._lines = lines
        self._print_now = print_now

    def add(self, snapshot: Snapshot) -> None:
        """Add a section for the graph after a pass has changed it."""
        title = Paragraph(["after ", Span(snapshot.pass_name, Style.STRONG)])
        section = [title, *self._section(snapshot.graph), Paragraph()]
        self._before = snapshot.graph
        self.blocks += section
        if self._print_now is not None:
            self._print_now(section)

    def _section(self, after: Graph) -> Iterator[Block]:
        if digest(self._before) == digest(after):
            # Only the sharing of nodes differs: trees would show changes that do not matter.
            before, now = statistics(self._before.fgraph), statistics(after.fgraph)
            yield Paragraph(
                "the same computation, of fewer nodes: "
                f"{before.outer_nodes} → {now.outer_nodes} outside, "
                f"{before.inner_nodes} → {now.inner_nodes} inside"
            )
        elif self._structural:
            yield from diff_report(diff(self._before, after), lines=self._lines)
        else:
            trees = tree_diff(self._before.fgraph, after.fgraph, self._depth)
            yield from _trees(trees, self._lines)


def _trees(lines: Sequence[DiffLine], most: int) -> Iterator[Block]:
    """Yield a diff of dprint trees, cut after ``most`` lines (0 for no limit)."""
    shown = lines[:most] if most else lines
    yield Preformatted([_line(line) for line in shown])
    if len(shown) < len(lines):
        more = plural(len(lines) - len(shown), "more line")
        yield Paragraph(Span(f"… {more}; --lines 0 shows all", Style.FAINT))


def _line(line: DiffLine) -> Span:
    sign, style = _SIGNS[line.kind]
    return Span(f"{sign}{line.text}", style)
