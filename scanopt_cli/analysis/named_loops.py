"""The loops of a graph and of its bodies, with their names, their slots' names and their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytensor.graph.basic import Variable
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.analysis.expression_text import inner_names
from scanopt_cli.analysis.provenance.locating import places
from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.ir.naming import slot_names, titles
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import Slot, SlotView


@dataclass(frozen=True, slots=True)
class NamedLoop:
    """One loop: its view, its names and those of its slots, its place, and the graph it is in.

    ``path`` ends in the name of the loop, after those of the loops and graphs around it; ``place``
    is where it was written, ``model.py:41 in step``, if that is known.
    """

    view: SlotView
    path: tuple[str, ...]
    names: Mapping[Slot, str]
    place: str | None
    graph: AbstractFunctionGraph

    @property
    def title(self) -> str:
        """The name of the loop after those around it, joined by ``/``."""
        return "/".join(self.path)


def named_loops(fgraph: AbstractFunctionGraph) -> Iterator[NamedLoop]:
    """Yield all loops, those of a body after its own; each distinct body is entered once."""
    return _loops(fgraph, (), {}, set())


def _loops(
    graph: AbstractFunctionGraph,
    path: tuple[str, ...],
    around: Mapping[Variable, str],
    seen: set[int],
) -> Iterator[NamedLoop]:
    if id(graph) in seen:
        return
    seen.add(id(graph))
    found = places(graph)
    for node, title in titles(graph.outputs).items():
        names: Mapping[Variable, str] = {}
        if is_loop(node):
            view = view_of(node)
            called = slot_names(view, lambda v: list(graph.clients.get(v, ())), around)
            names = inner_names(view, called)
            by_slot = dict(zip(view.slots, called, strict=True))
            place = found[node].place if node in found else None
            yield NamedLoop(view, (*path, title), by_slot, place, graph)
        for body in inner_graphs(node.op):
            yield from _loops(body, (*path, title), names, seen)
