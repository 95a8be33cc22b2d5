"""What it costs that Scans become TracedLoops and then Scans again: a table of nodes and buffers.

``PYTHONPATH=tests:sample_graphs python tests/support/there_and_back.py`` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Alloc, AllocEmpty
from pytensor.tensor.shape import SpecifyShape

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import core_op, inner_graphs, walk
from scanopt_cli.ir.scan_view import is_loop, loop_op, view_of
from scanopt_cli.ir.slots import SlotKind
from support.sample_building import samples
from support.zoo.model import Model, outputs_of
from support.zoo.models import MODELS

BEFORE = "remove-unused,clean-slices,mit-mot-to-sit-sot"
"""What runs before: TracedLoops have no mit_mots."""


class Cost(NamedTuple):
    """How many nodes a graph has, those in bodies aside and all, and what they keep.

    Equal bodies count once. ``traces`` are slots of loops that keep a row of every step, and
    ``arrays`` are allocated, as buffers or otherwise.
    """

    outer: int
    nodes: int
    traces: int
    arrays: int

    @classmethod
    def of(cls, graph: Graph) -> Cost:
        bodies = {body: None for node in walk(graph.fgraph) for body in inner_graphs(node.op)}
        nodes = [node for each in (graph.fgraph, *bodies) for node in each.toposort()]
        return cls(
            outer=len(graph.fgraph.apply_nodes),
            nodes=len(nodes),
            traces=sum(_traces(node) for node in nodes if is_loop(node)),
            arrays=sum(isinstance(core_op(node.op), Alloc | AllocEmpty) for node in nodes),
        )

    def is_at_most(self, other: Cost, *, told: int = 0) -> bool:
        """Whether nothing is more, but for ``told`` nodes outside of loops."""
        mine_but = self._replace(outer=self.outer - told, nodes=self.nodes - told)
        return all(mine <= theirs for mine, theirs in zip(mine_but, other, strict=True))


def _traces(node: Apply) -> int:
    slots = view_of(node).outputs()
    return sum(slot.kind is not SlotKind.UNTRACED for slot in slots)


class RoundTrip(NamedTuple):
    """A graph of Scans, the same of TracedLoops, and of Scans again."""

    scans: Graph
    loops: Graph
    back: Graph

    @classmethod
    def of(cls, graph: Any, before: str = BEFORE) -> RoundTrip:
        scans = so.optimize(graph, before).graph
        loops = so.optimize(scans, "scan-to-loop").graph
        return cls(scans, loops, so.optimize(loops, "loop-to-scan").graph)

    @property
    def told(self) -> int:
        """How many outputs have a SpecifyShape for the lengths that only the TracedLoop tells."""
        pairs = zip(self.scans.outputs, self.back.outputs, strict=True)
        return sum(
            isinstance(new.owner_op, SpecifyShape) and not isinstance(old.owner_op, SpecifyShape)
            for old, new in pairs
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        return tuple(map(Cost.of, self))


def loop_ops(graph: Graph) -> list[Any]:
    """Return the loops of a graph, those in bodies after those around them."""
    return [loop_op(node) for node in walk(graph.fgraph) if is_loop(node)]


def models() -> Iterator[tuple[Model, int]]:
    """Yield each model of the zoo with order 0, and those that have a gradient with 1."""
    for model in MODELS:
        for order in range(min(model.order, 1) + 1):
            yield model, order


def _rows() -> Iterator[str]:
    graphs = [(f"{m}, {order}", from_io(*outputs_of(m, order))) for m, order in models()]
    graphs += [(f"sample {name}", graph) for name, graph in samples().items()]
    total = [0] * len(Cost._fields) * 3
    yield "| graph, order | Scans | TracedLoops | Scans again |"
    yield "|---|---:|---:|---:|"
    for name, graph in graphs:
        costs = RoundTrip.of(graph).costs
        total = [a + b for a, b in zip(total, sum(costs, ()), strict=True)]
        yield f"| {name} | {' | '.join(' / '.join(map(str, cost)) for cost in costs)} |"
    thirds = [total[start : start + 4] for start in range(0, 12, 4)]
    yield f"| all | {' | '.join(' / '.join(map(str, third)) for third in thirds)} |"


if __name__ == "__main__":
    print("outer nodes / nodes / traces / arrays allocated\n")
    for line in _rows():
        print(line)
