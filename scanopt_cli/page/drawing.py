"""Draws the stages of a graph: the boxes and edges of each level, and what corresponds to what."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise

from scanopt_cli.analysis.expression_text import LEFT_OUT, describe, loop_results
from scanopt_cli.analysis.inspection import ReportedLoop, reported_loops
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.inner_graphs import body_of, op_name
from scanopt_cli.ir.naming import titles
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.page.correspondence import Correspondence, correspondence
from scanopt_cli.page.ends import Around, End, Makers
from scanopt_cli.page.grouping import grouped
from scanopt_cli.page.ordering import in_earlier_order
from scanopt_cli.page.picture import Box, BoxKind, Edge, Level, Picture, Remarked, Stage
from scanopt_cli.page.ports import facts, ports, type_text

_LONGEST = 80
"""How long the text of an operation may be."""
_LONGEST_WHOLE = 100_000
_MARK = "\ue000"
"""Stands around the place of an operand: for private use, so that hardly any name has it."""
_DEPTH = 2
_DIGITS = 10
_AT_THE_TOP = Around()


class Drawing:
    """The stages that are drawn so far; a box keeps its number from stage to stage."""

    def __init__(self) -> None:
        self._stages: list[Stage] = []
        self._known = _Known()

    def add(
        self,
        title: str,
        fgraph: FunctionGraph,
        remarks: Iterable[Remarked] = (),
        seconds: float | None = None,
    ) -> None:
        """Draw the next stage of the graph, which must not change afterwards.

        ``remarks`` are what a pass says of it, ``seconds`` is how long that took.
        """
        level = f"stage {len(self._stages)}"
        reports = {one.loop.view.node: one for one in reported_loops(fgraph)}
        before = self._known.drawn[self._stages[-1].level] if self._stages else None
        _StageDrawing(self._known, reports).draw(level, fgraph, _AT_THE_TOP, before)
        self._stages.append(
            Stage(title=title, level=level, seconds=seconds, remarks=tuple(remarks))
        )

    def picture(self) -> Picture:
        """Return what is drawn."""
        return Picture(stages=tuple(self._stages), levels=dict(self._known.levels))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A level that is drawn: its graph, the number of each node and end, and their order."""

    graph: AbstractFunctionGraph
    numbers: Mapping[Apply | End, int]
    places: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Known:
    """What the stages share: the levels, the names of bodies, and the numbers of boxes."""

    levels: dict[str, Level] = field(default_factory=dict)
    drawn: dict[str, _Drawn] = field(default_factory=dict)
    bodies: dict[Hashable, str] = field(default_factory=dict)
    sameness: Sameness = field(default_factory=Sameness)
    numbers: Iterator[int] = field(default_factory=count)

    def digest(self, node: Apply) -> str:
        """Return the first digits of the digest of a node's Op."""
        return self.sameness.of_op(node.op).hex()[:_DIGITS]

    def body(self, node: Apply) -> str:
        """Return the name of the level of a body: that of equal ones, whose slots are alike."""
        body = body_of(node.op)
        if body is None:
            return ""
        slots = [(s.kind, s.taps, s.out_taps) for s in view_of(node).slots] if is_loop(node) else ()
        key = (self.digest(node), body, tuple(slots))
        return self.bodies.setdefault(key, f"body {len(self.bodies)}")


@dataclass(frozen=True, slots=True)
class _StageDrawing:
    """Draws the levels of one stage that are not known yet."""

    known: _Known
    reports: Mapping[Apply, ReportedLoop]

    def draw(
        self, name: str, graph: AbstractFunctionGraph, around: Around, before: _Drawn | None
    ) -> None:
        """Draw a level and the levels inside of it; ``before`` is what came before it."""
        known = self.known
        if name in known.levels:
            return
        found = None if before is None else correspondence(before.graph, graph, around.ends)
        numbers = self._numbered(graph, found, before)
        drawn = known.drawn[name] = _Drawn(graph, numbers)
        level = _LevelDrawing(graph, around, numbers, self.reports)
        middle = []
        for node in _in_order(graph):
            if node in level.titles:
                body = self._body(node, found, before)
                middle.append(level.holder(node, body, known.digest(node)))
            else:
                middle.append(level.operation(node, known.digest(node)))
        earlier = {} if before is None else before.places
        parts = (list(level.inputs()), middle, list(level.outputs()))
        boxes = [box for part in parts for box in in_earlier_order(part, earlier)]
        drawn.places.update((box.id, place) for place, box in enumerate(boxes))
        known.levels[name] = Level(boxes=tuple(boxes), shown=grouped(boxes))

    def _numbered(
        self, graph: AbstractFunctionGraph, found: Correspondence | None, before: _Drawn | None
    ) -> dict[Apply | End, int]:
        """Return a number for each part: that of its counterpart, else a new one."""
        kept: dict[Apply | End, int] = {}
        if found is not None and before is not None:
            kept |= {new: before.numbers[old] for new, old in found.nodes.items()}
            for side, pairs in (("input", found.inputs), ("output", found.outputs)):
                kept |= {(side, new): before.numbers[side, old] for old, new in pairs}
        parts: list[Apply | End] = [
            *(("input", place) for place in range(len(graph.inputs))),
            *graph.toposort(),
            *(("output", place) for place in range(len(graph.outputs))),
        ]
        return {part: kept[part] if part in kept else next(self.known.numbers) for part in parts}

    def _body(self, node: Apply, found: Correspondence | None, before: _Drawn | None) -> str:
        """Draw the body of a node, and return the name of its level."""
        body, name = body_of(node.op), self.known.body(node)
        if body is None:
            return name
        around, older = Around.of(node, self.reports.get(node)), None
        if found is not None and before is not None and node in found.bodies:
            around = replace(around, ends=found.bodies[node])
            older = self.known.drawn.get(self.known.body(found.nodes[node]))
        self.draw(name, body, around, older)
        return name


class _LevelDrawing:
    """Makes the boxes of one level."""

    def __init__(
        self,
        graph: AbstractFunctionGraph,
        around: Around,
        numbers: Mapping[Apply | End, int],
        reports: Mapping[Apply, ReportedLoop],
    ) -> None:
        self.titles = titles(graph.outputs)
        self._graph, self._around, self._numbers = graph, around, numbers
        self._reports = reports
        self._makers = Makers(graph, numbers, reports)
        self._names = {**around.names, **loop_results(self.titles)}
        self._lengths = Lengths()

    def inputs(self) -> Iterator[Box]:
        """Yield the boxes of inputs; of a body, of those that it reads."""
        around = self._around
        for place, variable in enumerate(self._graph.inputs):
            if around.is_body and not self._graph.clients.get(variable):
                continue
            yield Box(
                id=self._numbers["input", place],
                kind=BoxKind.INPUT,
                label=self._text(variable),
                type=type_text(variable),
                slot=around.inputs[place] if around.is_body else -1,
            )

    def operation(self, node: Apply, digest: str) -> Box:
        """Return the box of a node without a body."""
        text = self._text(node.outputs[0])
        return Box(
            id=self._numbers[node],
            kind=BoxKind.OPERATION,
            label=_label(node),
            text=text,
            whole=self._whole(node) if LEFT_OUT in text else (),
            type=type_text(node.outputs[0]),
            edges=self._makers.edges(node),
            digest=digest,
            raises=_raises(node.op),
        )

    def holder(self, node: Apply, body: str, digest: str) -> Box:
        """Return the box of a loop or an inner graph, of which ``body`` is the level."""
        reported = self._reports.get(node)
        return Box(
            id=self._numbers[node],
            kind=BoxKind.LOOP if is_loop(node) else BoxKind.GRAPH,
            label=self.titles[node],
            text=op_name(node.op),
            edges=self._makers.edges(node),
            place="" if reported is None else reported.report.place or "",
            facts=() if reported is None else tuple(facts(reported.report)),
            ports=ports(node, reported),
            body=body,
            digest=digest,
        )

    def outputs(self) -> Iterator[Box]:
        """Yield the boxes of outputs."""
        around = self._around
        for place, output in enumerate(self._graph.outputs):
            edges: tuple[Edge, ...] = self._makers.edge(0, output)
            yield Box(
                id=self._numbers["output", place],
                kind=BoxKind.OUTPUT,
                label=around.output_names[place] if around.is_body else f"output {place}",
                text=self._text(output),
                type=type_text(output),
                edges=edges,
                slot=around.outputs[place] if around.is_body else -1,
            )

    def _text(self, variable: Variable) -> str:
        return describe(
            variable, self._names, depth=_DEPTH, lengths=self._lengths, longest=_LONGEST
        )

    def _whole(self, node: Apply) -> tuple[str | int, ...]:
        """Return the operation of a node, and the place of each operand that is one itself."""

        def told(places: Mapping[int, str]) -> str:
            names = {node.inputs[place]: text for place, text in places.items()}
            return describe(
                node.outputs[0],
                {**self._names, **names},
                depth=1,
                lengths=self._lengths,
                longest=_LONGEST_WHOLE,
            )

        inside = {
            place: f"{_MARK}{place}{_MARK}"
            for place, variable in enumerate(node.inputs)
            if describe(variable, self._names, 0, self._lengths) == LEFT_OUT
        }
        plain = told(dict.fromkeys(inside, ""))
        if _MARK in plain:  # a name has it
            return ()
        pieces = told(inside).split(_MARK)
        return tuple(int(p) if n % 2 else p for n, p in enumerate(pieces) if p)


def _in_order(graph: AbstractFunctionGraph) -> list[Apply]:
    """Return the nodes, each behind those it reads and near to them, as outputs need them."""
    order: dict[Apply, None] = {}
    waiting: list[Apply] = [v.owner for v in reversed(graph.outputs) if v.owner is not None]
    while waiting:
        node = waiting[-1]
        read = (v.owner for v in reversed(node.inputs) if v.owner is not None)
        left = [] if node in order else [owner for owner in read if owner not in order]
        if left:
            waiting += left
        else:
            order[waiting.pop()] = None
    return list(order)


def _raises(op: Op) -> str:
    """Return what a check raises, and when."""
    if not isinstance(op, CheckAndRaise):
        return ""
    message = f": {op.msg}" if op.msg else ""
    return f"raises {op.exc_type.__name__} unless its conditions hold{message}"


def _label(node: Apply) -> str:
    """Return the name of an Op: of an elementwise one, that of the function of numbers."""
    of_numbers = getattr(node.op, "scalar_op", None)
    text = str(node.op) if of_numbers is None else type(of_numbers).__name__.lower()
    return text.partition("{")[0]
