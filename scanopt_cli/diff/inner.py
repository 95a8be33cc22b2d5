"""Bodies of loops and inner graphs as standalone graphs, with names that PyTensor lacks."""

from __future__ import annotations

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.ir.inner_graphs import body_of
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.slots import STATES, SlotKind


def body_graph(side: IndexedGraph, node: Apply) -> FunctionGraph:
    """Return an unfrozen copy of the body of ``node``, its inputs named after the outer inputs.

    ``x[t]`` is the current row of a sequence, ``h[t-1]`` a past value of a state.
    """
    body = body_of(node.op)
    assert body is not None
    graph = body.unfreeze()
    names = _slot_faces(side, node) if is_loop(node) else [v.name for v in node.inputs]
    for variable, name in zip(graph.inputs, names, strict=True):
        variable.name = name
    return graph


def _slot_faces(side: IndexedGraph, node: Apply) -> list[str]:
    view, names = side.view(node), side.slot_names(node)
    faces = {
        variable: f"{names[slot]}{_time(slot.kind, tap)}"
        for slot in view.slots
        for tap, variable in zip(slot.taps or (0,), slot.inner_inputs, strict=False)
    }
    return [faces[variable] for variable in view.op.fgraph.inputs]


def _time(kind: SlotKind, tap: int) -> str:
    if kind in STATES:
        return f"[t{tap:+d}]" if tap else "[t]"
    return "[t]" if kind is SlotKind.SEQ else ""
