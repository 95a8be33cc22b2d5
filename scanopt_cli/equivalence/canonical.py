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

from collections.abc import Iterable, Mapping

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.equivalence.loop_forms import condition_key, output_keys
from scanopt_cli.equivalence.operands import commutes
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph
from scanopt_cli.ir.scan_view import ScanView, scan_op


class Digests:
    """Digests of the variables of one graph, each computed once.

    ``inputs`` are the graph's inputs. Other roots that are not constants are opaque: they are
    compared by identity. A digest stays valid as long as nothing upstream of its variable changes.
    ``sameness`` defines what counts as equal; the default is ``Sameness()``.
    """

    def __init__(
        self, inputs: Iterable[Variable] = (), *, sameness: Sameness | None = None
    ) -> None:
        self.sameness = Sameness() if sameness is None else sameness
        self._known: dict[Variable, bytes] = {}
        for position, variable in enumerate(inputs):
            key = self.sameness.key("input", position, variable.type, self._name(variable))
            self._known[variable] = key

    @classmethod
    def given(cls, sameness: Sameness, known: Mapping[Variable, bytes]) -> Digests:
        """Return digests that start from the ``known`` digests of some variables."""
        digests = cls(sameness=sameness)
        digests._known.update(known)
        return digests

    def of(self, variable: Variable) -> bytes:
        """Return the digest of ``variable``; only upstream digests not yet known are computed."""
        waiting = [variable]
        while waiting:
            node = waiting[-1].owner
            if waiting[-1] in self._known:
                waiting.pop()
            elif node is None:
                self._leaf(waiting.pop())
            elif unknown := [part for part in node.inputs if part not in self._known]:
                waiting.extend(unknown)
            else:
                self.add(node)
        return self._known[variable]

    def of_condition(self, view: ScanView) -> bytes:
        """Return the digest of a while-loop's stop condition, whatever else the loop computes."""
        return condition_key(self, view)

    def add(self, node: Apply) -> None:
        """Compute the digests of the outputs of ``node``.

        Each of its inputs has a digest already or has no owner.
        """
        inputs = [
            self._leaf(variable) if variable.owner is None else self._known[variable]
            for variable in node.inputs
        ]
        if scan_op(node) is not None:
            keys = output_keys(self, ScanView.of(node))
        else:
            if commutes(node):
                inputs[:2] = sorted(inputs[:2])
            op, of_output = self.sameness.of_op(node.op), self.sameness.of_output
            keys = {v: of_output(op, inputs, position) for position, v in enumerate(node.outputs)}
        if self.sameness.names:
            keys = {v: self.sameness.key("named", key, v.name) for v, key in keys.items()}
        self._known.update(keys)

    def _leaf(self, variable: Variable) -> bytes:
        known = self._known.get(variable)
        if known is None:
            tag = "constant" if isinstance(variable, Constant) else "root"
            known = self.sameness.key(tag, variable, self._name(variable))
            self._known[variable] = known
        return known

    def _name(self, variable: Variable) -> str | None:
        return variable.name if self.sameness.names else None


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
        A `Graph`, a ``FunctionGraph``, or a pair of inputs and outputs.
    names
        Whether names of variables, loops and OpFromGraphs count.
    gradients
        Whether it counts how an OpFromGraph is differentiated and whether it is inlined. If so,
        equal graphs apply the same Ops, not only Ops that compute the same.

    Raises
    ------
    ScanoptError
        If ``graph`` is not a graph.
    """
    if isinstance(graph, Graph):
        graph = graph.fgraph
    fgraph = graph if isinstance(graph, AbstractFunctionGraph) else as_graph(graph).fgraph
    return Sameness(names=names, gradients=gradients).of_graph(fgraph).hex()
