"""Integrity: what a graph knows of its own nodes."""

from __future__ import annotations

from collections import defaultdict

from pytensor.graph.basic import Apply, AtomicVariable, Variable
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.graph.traversal import io_toposort

from scanopt_cli.errors import PassError


def check_integrity(fgraph: FunctionGraph) -> None:
    """Check that the nodes, clients and inputs that ``fgraph`` records are those of its outputs.

    This takes linear time. ``FunctionGraph.check_integrity`` searches the list of a variable's
    clients once for each client, which takes quadratic time.

    Raises
    ------
    PassError
        If they are not.
    """
    nodes = io_toposort(fgraph.inputs, fgraph.outputs)
    if fgraph.apply_nodes != set(nodes):
        raise PassError("its nodes are not those that its outputs need")
    readers: dict[Variable, set[tuple[Apply, int]]] = defaultdict(set)
    for node in nodes:
        for place, variable in enumerate(node.inputs):
            readers[variable].add((node, place))
    ends: dict[Variable, set[int]] = defaultdict(set)
    for place, variable in enumerate(fgraph.outputs):
        ends[variable].add(place)
    inputs = set(fgraph.inputs)
    for variable in {*readers, *ends}:
        clients = fgraph.clients[variable]
        known = {(node, place) for node, place in clients if not isinstance(node.op, Output)}
        known_ends = {node.op.idx for node, _ in clients if isinstance(node.op, Output)}
        if known != readers[variable] or known_ends != ends[variable]:
            raise PassError(f"it does not know who reads {variable}")
        is_root = variable.owner is None and variable not in inputs
        if is_root and not isinstance(variable, AtomicVariable):
            raise PassError(f"{variable} is neither computed nor an input")
