"""The loops of a graph and of its bodies, with their names, their slots' names and their places."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.analysis.body_lengths import BodyLengths
from scanopt_cli.analysis.expression_text import inner_names, loop_results
from scanopt_cli.analysis.provenance.locating import places
from scanopt_cli.analysis.step_rows import invariant_inputs
from scanopt_cli.ir.inner_graphs import body_of, inner_graphs
from scanopt_cli.ir.naming import slot_names, titles
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import Slot, SlotView
from scanopt_cli.ir.written import Written

_NO_NAMES: Mapping[Variable, str] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Holder:
    """A loop, or another node with a body, that loops are in.

    Attributes
    ----------
    node
        The node.
    names
        What its body calls its inputs.
    around
        What it is in itself, if it is in a body.
    """

    node: Apply
    names: Mapping[Variable, str]
    around: Holder | None

    @cached_property
    def lengths(self) -> BodyLengths:
        """The lengths and numbers of the body, as they are told by what is around it."""
        around = None if self.around is None else self.around.lengths
        return BodyLengths(self.node, around=around, names=self.names)

    @cached_property
    def given(self) -> Mapping[Variable, Variable]:
        """What each input of the body is, outside; of a loop those that are so at each step."""
        if is_loop(self.node):
            return invariant_inputs(view_of(self.node))
        body = body_of(self.node.op)
        return {} if body is None else dict(zip(body.inputs, self.node.inputs, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class NamedLoop:
    """One loop: its view, its names and those of its slots, its place, and the graph it is in.

    Attributes
    ----------
    view
        The loop as slots.
    path
        Its name, after those of the loops and graphs around it.
    names
        The names of its slots.
    inner_names
        The text of each input of its body: ``h[t-1]``.
    place
        Where it was written, ``model.py:41 in step``, if that is known.
    graph
        The graph that it is in.
    titles
        The names of the loops and other graphs in `graph`.
    outer_names
        The texts of variables of `graph`: of the results of loops, of the inputs of a body.
    parent
        The nearest loop around it, if there is one.
    holder
        The node around it, a loop or not, if it is in a body.
    """

    view: SlotView
    path: tuple[str, ...]
    names: Mapping[Slot, str]
    inner_names: Mapping[Variable, str]
    place: str | None
    graph: AbstractFunctionGraph
    titles: Mapping[Apply, str]
    outer_names: Mapping[Variable, str]
    parent: NamedLoop | None
    holder: Holder | None

    @property
    def name(self) -> str:
        """The name of the loop, without those around it."""
        return self.path[-1]

    @property
    def title(self) -> str:
        """The name of the loop after those around it, joined by ``/``."""
        return "/".join(self.path)

    def clients(self, variable: Variable | None) -> list[tuple[Any, int]]:
        """Return who reads a variable of `graph`, and at which place."""
        return [] if variable is None else list(self.graph.clients.get(variable, ()))

    def quoted(self, slots: Iterable[Slot]) -> str:
        """Return the names of slots for a sentence."""
        return ", ".join(f"`{self.names[slot]}`" for slot in slots)

    def slots_named(self, names: Collection[str]) -> list[Slot]:
        """Return the slots of some names, in the loop's order."""
        return [slot for slot, name in self.names.items() if name in names]


def named_loops(fgraph: AbstractFunctionGraph, *, each_place: bool = False) -> Iterator[NamedLoop]:
    """Yield all loops, those of a body after its own.

    A body that is in several places is entered once, or, with ``each_place``, in each of them.
    """
    return _Walk(None if each_place else set()).loops(fgraph, (), _NO_NAMES, None, None)


class _Walk:
    """One walk over a graph and its bodies; ``seen`` holds the ids of those not to enter again."""

    def __init__(self, seen: set[int] | None) -> None:
        self._seen = seen
        # By id; the entry keeps the graph alive, so that its id is not used again.
        self._known: dict[
            int, tuple[AbstractFunctionGraph, Mapping[Apply, str], Mapping[Apply, Written]]
        ] = {}

    def loops(
        self,
        graph: AbstractFunctionGraph,
        path: tuple[str, ...],
        around: Mapping[Variable, str],
        parent: NamedLoop | None,
        holder: Holder | None,
    ) -> Iterator[NamedLoop]:
        """Yield the loops of ``graph`` and of its bodies."""
        if self._seen is not None:
            if id(graph) in self._seen:
                return
            self._seen.add(id(graph))
        if id(graph) not in self._known:
            self._known[id(graph)] = graph, titles(graph.outputs), places(graph)
        _, called, found = self._known[id(graph)]
        outer_names = {**around, **loop_results(called)}
        for node, title in called.items():
            names, nearest = _NO_NAMES, parent
            if is_loop(node):
                view = view_of(node)
                slots = slot_names(view, lambda v: list(graph.clients.get(v, ())), around)
                names = inner_names(view, slots)
                nearest = NamedLoop(
                    view=view,
                    path=(*path, title),
                    names=dict(zip(view.slots, slots, strict=True)),
                    inner_names=names,
                    place=found[node].place if node in found else None,
                    graph=graph,
                    titles=called,
                    outer_names=outer_names,
                    parent=parent,
                    holder=holder,
                )
                yield nearest
            inside = Holder(node, names, holder)
            for body in inner_graphs(node.op):
                yield from self.loops(body, (*path, title), names, nearest, inside)
