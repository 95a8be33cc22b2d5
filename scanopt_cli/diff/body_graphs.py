"""Bodies of loops and inner graphs as standalone graphs, and the places that two of them share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.pairing import Pairs
from scanopt_cli.ir.fast_graphs import unfrozen
from scanopt_cli.ir.inner_graphs import body_of
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.slots import STATES, Slot, SlotKind, SlotView

# For each slot, the place of an inner variable by its tap.
type _Places = Sequence[Mapping[int, int]]


def body_graph(graph: IndexedGraph, node: Apply) -> FunctionGraph:
    """Return an unfrozen copy of the body of ``node``, its inputs named after the outer inputs.

    ``x[t]`` is the current row of a sequence, ``h[t-1]`` a past value of a state.
    """
    body = body_of(node.op)
    assert body is not None
    copy = unfrozen(body)
    for variable, name in zip(copy.inputs, inner_names(graph, node), strict=True):
        variable.name = name
    return copy


def inner_pairs(view: SlotView, other: SlotView, slots: Pairs) -> tuple[Pairs, Pairs]:
    """Return pairs of inner inputs and of inner outputs: of paired slots, at the same tap."""
    inputs = _paired(_input_places(view), _input_places(other), slots)
    outputs = _paired(output_places(view), output_places(other), slots)
    if view.condition is not None and other.condition is not None:
        outputs.append((len(view.op.fgraph.outputs) - 1, len(other.op.fgraph.outputs) - 1))
    return inputs, outputs


def output_places(view: SlotView) -> _Places:
    """Return, for each slot, the place of its inner output by out-tap."""
    places: dict[Slot, dict[int, int]] = {}
    count = 0
    for slot in view.outputs():
        places[slot] = {tap: count + rank for rank, tap in enumerate(slot.out_taps)}
        count += len(slot.out_taps)
    return [places.get(slot, {}) for slot in view.slots]


def _input_places(view: SlotView) -> _Places:
    position = {variable: place for place, variable in enumerate(view.op.fgraph.inputs)}
    return [{tap: position[variable] for tap, variable in _read_at(slot)} for slot in view.slots]


def _paired(places: _Places, others: _Places, pairs: Pairs) -> list[tuple[int, int]]:
    return [
        (place, others[second][tap])
        for first, second in pairs
        for tap, place in places[first].items()
        if tap in others[second]
    ]


def inner_names(graph: IndexedGraph, node: Apply) -> list[str | None]:
    """Return the names of the inputs of the body of ``node``, as `body_graph` gives them."""
    if not is_loop(node):
        return [variable.name for variable in node.inputs]
    view, names = graph.view(node), graph.slot_names(node)
    found = {
        variable: f"{names[slot]}{_time(slot.kind, tap)}"
        for slot in view.slots
        for tap, variable in _read_at(slot)
    }
    return [found[variable] for variable in view.op.fgraph.inputs]


def _read_at(slot: Slot) -> Iterator[tuple[int, Variable]]:
    """Return the inner inputs of a slot with their taps; no taps count as tap 0."""
    return zip(slot.taps or (0,), slot.inner_inputs, strict=False)


def _time(kind: SlotKind, tap: int) -> str:
    if kind in STATES:
        return f"[t{tap:+d}]" if tap else "[t]"
    return "[t]" if kind is SlotKind.SEQ else ""
