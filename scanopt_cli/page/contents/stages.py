"""The stages of a graph: as it was given, and as each pass left it, with what that pass says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.ir.graph import Graph
from scanopt_cli.page.drawing import Drawing
from scanopt_cli.page.page import Drawn
from scanopt_cli.page.picture import Picture
from scanopt_cli.pipeline.optimizing import OptimizeResult, Snapshot, is_same_form
from scanopt_cli.pipeline.runner import PassRun
from scanopt_cli.remarks import Remark, RemarkKind
from scanopt_cli.reports.remark_text import grouped, hint_of, text_of
from scanopt_cli.text import plural

MOST_STAGES = 40
MOST_NODES = 40_000
"""How many stages a picture has at most, and how many nodes in all of them."""
AS_GIVEN = "as given"
_RESULT = "the result"


@dataclass(slots=True)
class Stages:
    """Keeps the graph as passes leave it: `watch` is for `optimize`."""

    graph: Graph
    kept: list[Snapshot] = field(default_factory=list)

    def watch(self, snapshot: Snapshot) -> None:
        """Keep the graph after a pass."""
        self.kept.append(snapshot)

    def drawn(self, result: OptimizeResult) -> tuple[Drawn, str]:
        """Return the picture of all stages, and a sentence on those that it leaves out, if any."""
        snapshots = self._snapshots(result)
        shown = _few(self.graph, snapshots)
        seconds: dict[str, float] = {}
        for run in result.passes:  # a pass may be listed twice
            seconds[run.name] = seconds.get(run.name, 0.0) + run.seconds
        remarks = _remarks(result.passes, shown)
        drawing = Drawing()
        drawing.add(AS_GIVEN, self.graph.fgraph, next(remarks))
        for snapshot, told in zip(shown, remarks, strict=True):
            name = snapshot.pass_name
            drawing.add(name, snapshot.graph.fgraph, told, seconds.get(name))
        left = len(snapshots) - len(shown)
        note = (
            f"{plural(left, 'stage')} between the first and the last ones "
            f"{'is' if left == 1 else 'are'} not drawn: a page has {MOST_STAGES} stages at most, "
            f"of {MOST_NODES} nodes in all"
        )
        return Drawn(title=self.graph.source, picture=drawing.picture()), note if left else ""

    def _snapshots(self, result: OptimizeResult) -> list[Snapshot]:
        """Return the stages after the first, of which the last is the result."""
        if not result.changed:  # one pass may have undone another
            return []
        last = self.kept[-1] if self.kept else None
        if last is not None and is_same_form(last.graph.fgraph, result.graph.fgraph):
            return self.kept
        return [*self.kept, Snapshot(_RESULT, result.graph)]


def picture_of(graph: Graph, remarks: Iterable[tuple[str, str, str]] = ()) -> Picture:
    """Return the picture of one graph, at one stage."""
    drawing = Drawing()
    drawing.add(AS_GIVEN, graph.fgraph, remarks)
    return drawing.picture()


def _few(graph: Graph, snapshots: Sequence[Snapshot]) -> Sequence[Snapshot]:
    """Return the snapshots, or of too many the first ones and the last."""
    taken = _nodes(graph) + (_nodes(snapshots[-1].graph) if snapshots else 0)
    shown: list[Snapshot] = []
    for snapshot in snapshots[:-1]:
        taken += _nodes(snapshot.graph)
        if len(shown) + 3 > MOST_STAGES or taken > MOST_NODES:
            break
        shown.append(snapshot)
    return [*shown, *snapshots[-1:]]


def _nodes(graph: Graph) -> int:
    counted = statistics(graph.fgraph)
    return counted.outer_nodes + counted.inner_nodes


def _remarks(
    runs: Sequence[PassRun], shown: Sequence[Snapshot]
) -> Iterator[list[tuple[str, str, str]]]:
    """Yield the remarks of the first stage, then those of each that is shown.

    What a pass did stands at the stage that it left. What it did not do, and what it found out,
    holds for the last of its stages; if it has none, for the last one of all.
    """
    last_of = {snapshot.pass_name: place for place, snapshot in enumerate(shown, 1)}
    by_pass: dict[str, list[Remark]] = {}
    for run in runs:  # a pass may be listed twice
        others = [remark for remark in run.remarks if remark.kind is not RemarkKind.PASSED]
        by_pass.setdefault(run.name, []).extend(others)
    rest: dict[int, list[tuple[str, str, str]]] = {}
    for name, others in by_pass.items():
        prefix = "" if name in last_of else f"{name}: "
        rest.setdefault(last_of.get(name, len(shown)), []).extend(told(others, prefix))
    yield rest.get(0, [])
    for place, snapshot in enumerate(shown, 1):
        done = [remark for remark in snapshot.remarks if remark.kind is RemarkKind.PASSED]
        yield [*told(done), *rest.get(place, [])]


def told(remarks: Iterable[Remark], prefix: str = "") -> list[tuple[str, str, str]]:
    """Return the kind, the loop and the text of each remark; of equal ones, one."""
    found = []
    for remark in grouped(remarks):
        hint = hint_of(remark)
        more = "" if hint is None else f" ({hint})"
        found.append((remark.kind.value, remark.scan, f"{prefix}{text_of(remark)}{more}"))
    return found
