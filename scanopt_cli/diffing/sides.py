"""One of two graphs that are compared, indexed for matching and for telling about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from scanopt_cli.diffing.pairing import pair_up
from scanopt_cli.graphs.bodies import core_op, inner_graphs
from scanopt_cli.identity.canonical import Digests
from scanopt_cli.scans.naming import slot_names
from scanopt_cli.scans.view import ScanView, Slot

type Pairs = Sequence[tuple[int, int]]
"""Places in two lists that belong together."""


class Side:
    """A graph with its nodes in order, who reads what, and digests of everything.

    ``order`` is the graph's inputs as they are paired with those of the other side: inputs at the
    same place count as the same.
    """

    def __init__(self, graph: FunctionGraph, order: Sequence[Variable]) -> None:
        self.graph = graph
        self.nodes: list[Apply] = list(graph.toposort())
        self.rank = {node: rank for rank, node in enumerate(self.nodes)}
        self.readers: dict[Variable, list[tuple[Apply, int]]] = defaultdict(list)
        for node in self.nodes:
            for place, variable in enumerate(node.inputs):
                self.readers[variable].append((node, place))
        self.ends: dict[Variable, list[int]] = defaultdict(list)
        for place, output in enumerate(graph.outputs):
            self.ends[output].append(place)
        self.input_rank = {variable: place for place, variable in enumerate(graph.inputs)}
        self._digests = Digests(order)
        for output in graph.outputs:
            self._digests.of(output)
        self._views: dict[Apply, ScanView] = {}
        self._slot_names: dict[Apply, dict[Slot, str]] = {}

    def digest(self, variable: Variable) -> bytes:
        """Return the digest of ``variable``, equal on both sides for equal computations."""
        return self._digests.of(variable)

    def op_digest(self, op: Op) -> bytes:
        """Return the digest of what ``op`` computes, its body included."""
        return self._digests.sameness.of_op(op)

    def view(self, node: Apply) -> ScanView:
        """Return the slots of a Scan node."""
        if node not in self._views:
            self._views[node] = ScanView.of(node)
        return self._views[node]

    def slot_names(self, node: Apply) -> dict[Slot, str]:
        """Return what the slots of a Scan node are called."""
        if node not in self._slot_names:
            view = self.view(node)
            names = slot_names(view, lambda variable: self.readers.get(variable, ()))
            self._slot_names[node] = dict(zip(view.slots, names, strict=True))
        return self._slot_names[node]

    @cached_property
    def loop_labels(self) -> dict[Apply, str]:
        """A name for each node that holds a graph; one that repeats gets a number."""
        holders = [node for node in self.nodes if inner_graphs(node.op)]
        repeats = Counter(op_name(node.op) for node in holders)
        seen: Counter[str] = Counter()
        labels = {}
        for node in holders:
            name = op_name(node.op)
            seen[name] += 1
            labels[node] = f"{name}#{seen[name]}" if repeats[name] > 1 else name
        return labels


def op_name(op: Op) -> str:
    """Return the name that was given to the core of ``op``, else its class."""
    core = core_op(op)
    return str(getattr(core, "name", None) or type(core).__name__)


def pair_inputs(before: Sequence[Variable], after: Sequence[Variable]) -> list[tuple[int, int]]:
    """Pair graph inputs by name where it is unique, then by place; types of one class only."""

    def by_name(item: tuple[int, Variable]) -> tuple[type, str] | None:
        variable = item[1]
        return (type(variable.type), variable.name) if variable.name else None

    def by_place(item: tuple[int, Variable]) -> tuple[type, int]:
        return type(item[1].type), item[0]

    items, others = list(enumerate(before)), list(enumerate(after))
    return pair_up(items, others, (by_name, by_name), (by_place, by_place))


def two_sides(before: FunctionGraph, after: FunctionGraph, inputs: Pairs) -> tuple[Side, Side]:
    """Return both graphs, digested so that paired ``inputs`` count as the same."""
    firsts = {place for place, _ in inputs}
    seconds = {place for _, place in inputs}
    alone = [v for place, v in enumerate(before.inputs) if place not in firsts]
    others = [v for place, v in enumerate(after.inputs) if place not in seconds]
    # What only one side has takes places that nothing takes on the other side.
    gap = [variable.type() for variable in alone]
    return (
        Side(before, [before.inputs[place] for place, _ in inputs] + alone),
        Side(after, [after.inputs[place] for _, place in inputs] + gap + others),
    )
