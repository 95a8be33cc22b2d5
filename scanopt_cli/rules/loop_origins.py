"""Which loops of a graph are derivatives of others."""

from __future__ import annotations

from collections.abc import Mapping

from pytensor.graph.basic import Apply

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.provenance.inference import infer
from scanopt_cli.analysis.provenance.nearest_scans import NearestScans
from scanopt_cli.rules.rule_contract import CheckContext


def parents(context: CheckContext) -> Mapping[Apply, Apply]:
    """Map each loop that is the derivative of another one to that one."""
    graphs = {id(loop.graph): loop.graph for loop in context.loops}
    return {
        node: origin.parent
        for graph in graphs.values()
        for node, origin in infer(NearestScans(graph)).items()
        if origin.parent is not None
    }


def written(context: CheckContext) -> list[NamedLoop]:
    """Return the loops that are derivatives of no other: those that a person wrote."""
    derived = parents(context)
    return [loop for loop in context.loops if loop.view.node not in derived]
