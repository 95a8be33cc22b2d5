"""How much arithmetic a call of a graph takes, that of loops in all of their steps."""

from __future__ import annotations

from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.analysis.body_lengths import BodyLengths
from scanopt_cli.analysis.formulas import Formula
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_costs import results_of
from scanopt_cli.ir.inner_graphs import body_of
from scanopt_cli.ir.scan_view import is_loop, view_of


def operations(fgraph: AbstractFunctionGraph) -> Formula:
    """Return how many results of arithmetic a call of ``fgraph`` computes, as a formula.

    A loop computes in each step what its body does; a while loop may stop before. A sum counts the
    elements that it reads, and a matrix product its multiplications; what moves elements counts
    nothing.
    """
    return _OperationCounter().count(fgraph)


class _OperationCounter:
    """Counts graphs, remembering each inner graph by identity."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[AbstractFunctionGraph, Formula]] = {}

    def count(self, graph: AbstractFunctionGraph) -> Formula:
        if id(graph) not in self._known:
            self._known[id(graph)] = (graph, self._count(graph))
        return self._known[id(graph)][1]

    def _count(self, graph: AbstractFunctionGraph) -> Formula:
        shapes, found = Lengths(), Formula()
        for node in graph.toposort():
            body = body_of(node.op)
            if body is None:
                found += results_of(node, shapes)
                continue
            inside = BodyLengths(node).formula_outside(self.count(body))
            if is_loop(node):
                view = view_of(node)
                lengths = Lengths(view.n_steps)
                batch = [(view.slots[0].outer_input, axis) for axis in range(view.batch_ndim)]
                factors = [lengths.steps, *(lengths.length_of(*axis) for axis in batch)]
                inside = inside.times(factors)
            found += inside
        return found
