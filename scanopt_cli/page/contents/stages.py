"""The stages of a graph: as it was given, and as each pass left it, with what that pass says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from scanopt_cli.analysis.statistics import Statistics, statistics
from scanopt_cli.ir.graph import Graph
from scanopt_cli.page.drawing import Drawing
from scanopt_cli.page.page import Drawn, Run, Runs
from scanopt_cli.page.picture import Picture, Remarked
from scanopt_cli.pipeline.optimizing import OptimizeResult, Snapshot, is_same_form
from scanopt_cli.pipeline.runner import PassRun
from scanopt_cli.remarks import Remark, RemarkKind
from scanopt_cli.reports.remark_text import bracketed_hint, grouped, text_of
from scanopt_cli.text import plural

MOST_STAGES = 40
MOST_NODES = 40_000
"""How many stages a picture has at most, and how many nodes in all of them."""
AS_GIVEN = "as given"
_RESULT = "the result"
_NOTHING = "nothing"
_REST = "other runs of these"


@dataclass(slots=True)
class Stages:
    """Keeps the graph as passes leave it: `watch` is for `optimize`."""

    graph: Graph
    kept: list[Snapshot] = field(default_factory=list)

    def watch(self, snapshot: Snapshot) -> None:
        """Keep the graph after a pass."""
        self.kept.append(snapshot)

    def drawn(self, result: OptimizeResult) -> tuple[Drawn, Runs, str]:
        """Return the picture of all stages, and the table of what led from each to the next.

        And a sentence on the stages that the picture leaves out, if any.
        """
        snapshots = self._snapshots(result)
        sizes = [statistics(one.fgraph) for one in (self.graph, *(s.graph for s in snapshots))]
        first = _n_first(sizes)
        drawn = [*range(first), *([len(snapshots) - 1] if first < len(snapshots) else [])]
        rows = [
            replace(row, stage=drawn.index(place) + 1 if place in drawn else None)
            for place, row in enumerate(_rows(result.passes, snapshots, sizes))
        ]
        drawing = Drawing()
        told = list(_others(rows, len(snapshots)))
        drawing.add(AS_GIVEN, self.graph.fgraph, () if drawn else told)
        for place in drawn:
            row = rows[place]
            remarks = [*row.remarks, *(told if place == drawn[-1] else ())]
            drawing.add(row.name, snapshots[place].graph.fgraph, remarks, row.seconds)
        left = len(snapshots) - len(drawn)
        note = (
            f"{plural(left, 'stage')} between the first and the last ones "
            f"{'is' if left == 1 else 'are'} not drawn: a page has {MOST_STAGES} stages at most, "
            f"of {MOST_NODES} nodes in all"
        )
        begin = Run(name=AS_GIVEN, change=_size(sizes[0]), stage=0)
        return (
            Drawn(title=self.graph.source, picture=drawing.picture()),
            Runs((begin, *rows)),
            note if left else "",
        )

    def _snapshots(self, result: OptimizeResult) -> list[Snapshot]:
        """Return the stages after the first, of which the last is the result."""
        if not result.changed:  # one pass may have undone another
            return []
        last = self.kept[-1] if self.kept else None
        if last is not None and is_same_form(last.graph.fgraph, result.graph.fgraph):
            return self.kept
        return [*self.kept, Snapshot(_RESULT, result.graph)]


def picture_of(graph: Graph, remarks: Iterable[Remarked] = ()) -> Picture:
    """Return the picture of one graph, at one stage."""
    drawing = Drawing()
    drawing.add(AS_GIVEN, graph.fgraph, remarks)
    return drawing.picture()


def runs_of(passes: Sequence[PassRun]) -> Runs:
    """Return the table of what passes did, each in all its runs, where no stage was kept."""
    return Runs(
        [
            Run(
                name=run.name,
                change=plural(run.rewrites, "rewrite") if run.changed else _NOTHING,
                seconds=run.seconds,
                remarks=told(run.remarks),
            )
            for run in passes
        ]
    )


def _n_first(sizes: Sequence[Statistics]) -> int:
    """Return how many stages are drawn after the first, besides the last: all, or the first ones.

    ``sizes`` are those of the graph as it was given and of each stage.
    """
    given, *others = map(_nodes, sizes)
    if not others:
        return 0
    taken = given + others[-1]
    for place, nodes in enumerate(others[:-1]):
        taken += nodes
        if place + 3 > MOST_STAGES or taken > MOST_NODES:
            return place
    return len(others)


def _nodes(size: Statistics) -> int:
    return size.outer_nodes + size.inner_nodes


def _rows(
    passes: Sequence[PassRun], snapshots: Sequence[Snapshot], sizes: Sequence[Statistics]
) -> Iterator[Run]:
    """Yield a row for each snapshot, then one for each pass that has none, then one for the rest.

    What a pass did stands at the run that did it. What it did not do, and what it found out, holds
    for the last of its runs.
    """
    last_of = {snapshot.pass_name: place for place, snapshot in enumerate(snapshots)}
    others: dict[str, list[Remark]] = {}
    left = dict[str, float]()
    for run in passes:  # a pass may be listed twice
        keeps = run.name not in last_of
        others.setdefault(run.name, []).extend(
            one for one in run.remarks if keeps or one.kind is not RemarkKind.PASSED
        )
        left[run.name] = left.get(run.name, 0.0) + run.seconds
    for place, snapshot in enumerate(snapshots):
        name = snapshot.pass_name
        done = [one for one in snapshot.remarks if one.kind is RemarkKind.PASSED]
        rest = others.pop(name, []) if last_of[name] == place else []
        left[name] = left.get(name, 0.0) - snapshot.seconds
        yield Run(
            name=name,
            change=_difference(*sizes[place : place + 2]),
            seconds=snapshot.seconds or None,
            remarks=(*told(done), *told(rest)),
        )
    for name, remarks in others.items():
        yield Run(name=name, change=_NOTHING, seconds=left.pop(name), remarks=told(remarks))
    seconds = sum(spent for spent in left.values() if spent > 0)
    if seconds:
        yield Run(name=_REST, change=_NOTHING, seconds=seconds)


def _others(rows: Sequence[Run], n_changed: int) -> Iterator[Remarked]:
    """Yield the remarks of passes that have no stage in the picture, which they name."""
    for place, row in enumerate(rows):
        for kind, loop, text in row.remarks:
            if row.stage is None and (place >= n_changed or kind != RemarkKind.PASSED):
                yield kind, loop, f"{row.name}: {text}"


def _difference(before: Statistics, after: Statistics) -> str:
    """Return which counts changed: ``Scans -1, nodes -12``."""
    counts = {
        "Scans": after.scans - before.scans,
        "TracedLoops": after.loops - before.loops,
        "nodes": _nodes(after) - _nodes(before),
    }
    texts = [f"{label} {count:+d}".replace("-", "−") for label, count in counts.items() if count]
    return ", ".join(texts) or "as many nodes"


def _size(size: Statistics) -> str:
    loops = [plural(size.scans, "Scan")] if size.scans else []
    loops += [plural(size.loops, "TracedLoop")] if size.loops else []
    return ", ".join((*loops, plural(_nodes(size), "node")))


def told(remarks: Iterable[Remark], prefix: str = "") -> list[Remarked]:
    """Return the kind, the loop and the text of each remark; of equal ones, one."""
    return [
        (remark.kind.value, remark.scan, f"{prefix}{text_of(remark)}{bracketed_hint(remark)}")
        for remark in grouped(remarks)
    ]
