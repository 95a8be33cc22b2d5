"""What passes changed in a graph: in all, or each of them while a pipeline runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.diff.comparing import diff
from scanopt_cli.diff.trees import tree_diff
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.optimizing import Snapshot
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.document import Block, Paragraph, Preformatted, Span, Style, left_out

# By the sign with which a line of a diff begins.
_STYLES = {"+": Style.GOOD, "-": Style.BAD, "@": Style.NAME}


def showing_changes(
    show: Callable[[Iterable[Block]], None],
    graph: Graph,
    *,
    structural: bool,
    depth: int | None = None,
    lines: int = 0,
) -> Callable[[Snapshot], None]:
    """Return a function that gives ``show`` one section for each change that a pass makes.

    ``graph`` is the graph before the first change. ``structural`` shows a diff of matched graphs in
    place of dprint trees. ``depth`` limits the depth of the trees, ``lines`` the length of a
    section (0 for no limit).
    """
    before = graph

    def watch(snapshot: Snapshot) -> None:
        nonlocal before
        title = Paragraph(["after ", Span(snapshot.pass_name, Style.STRONG)])
        changes = changes_report(
            before, snapshot.graph, structural=structural, depth=depth, lines=lines
        )
        show([title, *changes, Paragraph()])
        before = snapshot.graph

    return watch


def changes_report(
    before: Graph,
    after: Graph,
    *,
    structural: bool,
    depth: int | None = None,
    lines: int = 0,
    stat: bool = False,
) -> Iterator[Block]:
    """Yield what differs between a graph and the one that came of it.

    The parameters are those of `showing_changes`; with ``stat``, changes are only counted.
    """
    if digest(before) == digest(after):
        # Only the sharing of nodes differs: trees would show changes that do not matter.
        old, new = statistics(before.fgraph), statistics(after.fgraph)
        yield Paragraph(
            "the same computation, of fewer nodes: "
            f"{old.outer_nodes} → {new.outer_nodes} outside, "
            f"{old.inner_nodes} → {new.inner_nodes} inside"
        )
    elif structural:
        yield from diff_report(diff(before, after), lines=lines, stat=stat, has_headline=False)
    else:
        yield from _trees(tree_diff(before.fgraph, after.fgraph, depth), lines)


def _trees(lines: Sequence[str], most: int) -> Iterator[Block]:
    """Yield a diff of dprint trees, cut after ``most`` lines (0 for no limit)."""
    shown = lines[:most] if most else lines
    yield Preformatted([Span(line, _STYLES.get(line[0], Style.PLAIN)) for line in shown])
    if len(shown) < len(lines):
        yield left_out(len(lines) - len(shown), "line", "--lines 0 shows all")
