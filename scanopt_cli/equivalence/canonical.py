"""Canonical digests, which decide whether two graphs are the same.

The digest of a variable is a Merkle hash of the encoding of its Op, the digests of the Op's inputs
and the position of the output. Graph inputs are identified by position and type. Names, tags, stack
traces and the order in which nodes were created do not enter the digest, so alpha-equivalent graphs
have equal digests, and so do equal subgraphs of one graph. Loops are compared by their slots, in
any order (see `scanopt_cli.equivalence.loop_forms`). One pass computes all digests, in time near
linear in the number of nodes.

The order of two operands does not count where swapping them cannot change a bit: the first two
inputs of sums, products, bitwise and logical operations and comparisons for equality.
(``(a + b) + c`` may round differently from ``(a + c) + b``.)
"""

from __future__ import annotations

from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph, loaded_graph


def digest(
    graph: GraphLike | AbstractFunctionGraph, *, names: bool = False, gradients: bool = False
) -> str:
    """Return the canonical digest of ``graph`` as a hex string of 32 characters.

    Graphs that compute the same outputs from the same inputs by the same operations have equal
    digests, in every process and on every machine, whatever their variables are called. If a graph
    has Ops that cannot be encoded by value, its digest differs in every process.

    Parameters
    ----------
    graph
        A `Graph`, the path of its file, a ``FunctionGraph``, or a pair of inputs and outputs.
    names
        Whether names of variables, loops and OpFromGraphs count.
    gradients
        Whether it counts how an OpFromGraph is differentiated and whether it is inlined. If so,
        equal graphs apply the same Ops, not only Ops that compute the same.

    Raises
    ------
    ScanoptError
        If ``graph`` is not a graph, or its file cannot be loaded.
    """
    given = graph if isinstance(graph, AbstractFunctionGraph) else loaded_graph(graph)
    if isinstance(given, Graph):
        given = given.fgraph
    fgraph = given if isinstance(given, AbstractFunctionGraph) else as_graph(given).fgraph
    return Sameness(names=names, gradients=gradients).of_graph(fgraph).hex()
