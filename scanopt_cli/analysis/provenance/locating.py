"""Let the loops of a graph say where they were written, pullbacks where their loop was.

PyTensor's stack of a pullback ends where the gradient was asked for, which says nothing of the
loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph

from scanopt_cli.analysis.provenance.inference import infer
from scanopt_cli.analysis.provenance.nearest_scans import NearestScans
from scanopt_cli.analysis.provenance.scan_origin import Origin
from scanopt_cli.ir.call_traces import written_in
from scanopt_cli.ir.inner_graphs import PULLBACK, op_name
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.written import Written, marked, written


def locate(fgraph: FunctionGraph) -> None:
    """Attach to outer loops where they were written, if that is known and they do not say so.

    An Op is replaced in place, in its node, by one that says so.
    """
    for node, place in places(fgraph).items():
        if written(node.op) is None:
            node.op = marked(node.op, place)


def places(
    fgraph: AbstractFunctionGraph, origins: Mapping[Apply, Origin] | None = None
) -> dict[Apply, Written]:
    """Return where the outer loops of ``fgraph`` were written, of those of which it is known.

    Without ``origins``, which pullback is of which loop is inferred.
    """
    loops = [node for node in fgraph.apply_nodes if is_loop(node)]
    unknown = [node for node in loops if written(node.op) is None]
    if origins is None:
        is_differentiated = any(op_name(node.op).startswith(PULLBACK) for node in unknown)
        origins = infer(NearestScans(fgraph.inputs, fgraph.toposort())) if is_differentiated else {}
    found = {}
    for node in loops:
        root = _root(node, origins)
        place = written(node.op) or written_in(root, fgraph.clients)
        if place is not None:
            # What a pullback reads is not what the step of its loop reads.
            is_own = root is node or written(node.op) is not None
            found[node] = place if is_own else place._replace(arguments=())
    return found


def _root(node: Apply, origins: Mapping[Apply, Origin]) -> Apply:
    """Return the loop that a pullback comes from, or a pullback of which nothing is known."""
    while (origin := origins.get(node)) is not None and origin.parent is not None:
        node = origin.parent
    return node
