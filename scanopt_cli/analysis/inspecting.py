"""`inspect`: the loops of a graph that is given in any form."""

from __future__ import annotations

from scanopt_cli.analysis.inspection import Inspection, inspect_graph
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import GraphLike, as_graph


@bounded_folding()
def inspect(graph: GraphLike) -> Inspection:
    """Describe every loop of ``graph`` and its slots: what feeds, computes, keeps and reads them.

    Parameters
    ----------
    graph
        A loaded graph, the path of its file, a FunctionGraph or an ``(inputs, outputs)`` pair.

    Raises
    ------
    ScanoptError
        If ``graph`` is no graph, or its file cannot be loaded.
    """
    return inspect_graph(as_graph(graph).fgraph)
