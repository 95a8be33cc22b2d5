"""The ends of boxes: which port reads what, and what a body is told of the node around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.analysis.expression_text import at_tap
from scanopt_cli.analysis.inspection import ReportedLoop
from scanopt_cli.diff.matching.pairing import Pairs
from scanopt_cli.ir.inner_graphs import body_of
from scanopt_cli.page.picture import Edge

type End = tuple[str, int]
"""An input or an output of a level, and its place."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a level is told of the node around it.

    Attributes
    ----------
    is_body
        Whether there is one.
    names
        What inputs are called.
    inputs, outputs
        The port of each input and output of the body; -1 for the condition.
    output_names
        What the outputs are called.
    ends
        Which inputs and outputs correspond to those of the body of an earlier stage.
    """

    is_body: bool = False
    names: Mapping[Variable, str] = field(default_factory=dict)
    inputs: Sequence[int] = ()
    outputs: Sequence[int] = ()
    output_names: Sequence[str] = ()
    ends: tuple[Pairs, Pairs] | None = None

    @classmethod
    def of(cls, node: Apply, reported: ReportedLoop | None) -> Around:
        """Return what the body of ``node`` is told, which is a loop if it has a report."""
        return _of_graph(node) if reported is None else _of_loop(reported)


def _of_graph(node: Apply) -> Around:
    body = body_of(node.op)
    if body is None:
        return Around(is_body=True)
    names = {
        inner: str(inner.name or outer.name or f"input {place}")
        for place, (inner, outer) in enumerate(zip(body.inputs, node.inputs, strict=False))
    }
    n_inputs, n_outputs = len(body.inputs), len(body.outputs)
    return Around(
        is_body=True,
        names=names,
        inputs=range(n_inputs),
        outputs=range(n_inputs, n_inputs + n_outputs),
        output_names=[f"output {place}" for place in range(n_outputs)],
    )


def _of_loop(reported: ReportedLoop) -> Around:
    loop = reported.loop
    view, body = loop.view, loop.view.op.fgraph
    names, order = list(loop.names.values()), {slot: n for n, slot in enumerate(view.slots)}
    reads = {v: place for place, slot in enumerate(view.slots) for v in slot.inner_inputs}
    made = [(order[slot], slot, tap) for slot in view.outputs() for tap in slot.out_taps]
    places = [place for place, _, _ in made]
    called = [
        f"{names[place]}[{at_tap(tap)}]" if slot.taps else names[place] for place, slot, tap in made
    ]
    n_conditions = len(body.outputs) - len(made)
    return Around(
        is_body=True,
        names=loop.inner_names,
        inputs=[reads.get(v, -1) for v in body.inputs],
        outputs=[*places, *([-1] * n_conditions)],
        output_names=[*called, *(["condition"] * n_conditions)],
    )


@dataclass(frozen=True, slots=True)
class Makers:
    """Says which port of which box makes a variable."""

    graph: AbstractFunctionGraph
    numbers: Mapping[Apply | End, int]
    reports: Mapping[Apply, ReportedLoop]
    _inputs: dict[Variable, int] = field(default_factory=dict)
    _ports: dict[Apply, dict[Variable, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inputs.update({v: place for place, v in enumerate(self.graph.inputs)})

    def edges(self, node: Apply) -> tuple[Edge, ...]:
        """Return what a node reads, constants left out."""
        places = self._read_at(node)
        return tuple(
            edge
            for variable, port in zip(node.inputs, places, strict=True)
            for edge in self.edge(port, variable)
        )

    def edge(self, port: int, variable: Variable) -> tuple[Edge, ...]:
        """Return the edge to a port from what makes a variable; none from a constant."""
        if variable in self._inputs:
            return (Edge(port=port, box=self.numbers["input", self._inputs[variable]]),)
        if isinstance(variable, Constant) or variable.owner is None:
            return ()
        owner = variable.owner
        return (Edge(port=port, box=self.numbers[owner], from_port=self._made_at(variable)),)

    def _read_at(self, node: Apply) -> Sequence[int]:
        """Return the port of each input of a node."""
        reported = self.reports.get(node)
        if reported is None:
            return range(len(node.inputs))
        slots = reported.loop.view.slots
        with_input = [place for place, slot in enumerate(slots) if slot.has_input]
        return [len(slots), *with_input]

    def _made_at(self, variable: Variable) -> int:
        """Return the port of an output of a node."""
        node = variable.owner
        reported = self.reports.get(node)
        if reported is None:
            is_graph = body_of(node.op) is not None
            return (len(node.inputs) if is_graph else 0) + (variable.index or 0)
        if node not in self._ports:
            self._ports[node] = {
                output: place
                for place, slot in enumerate(reported.loop.view.slots)
                for output in slot.outer_outputs
            }
        return self._ports[node].get(variable, 0)
