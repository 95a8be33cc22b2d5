"""Canonical digests: one notion of when two graphs are the same.

The digest of a variable is a Merkle hash: of its Op's encoding, of the digests of the Op's inputs
and of the output's position; graph inputs are told by position and type. Names, tags, traces and
the order in which nodes were made do not enter, so alpha-equivalent graphs have equal digests and
equal subgraphs of one graph too. One pass, linear in the number of nodes.

Swapped operands are the same where swapping cannot change a bit: the first two inputs of sums,
products and comparisons for equality. (``(a + b) + c`` may round otherwise than ``(a + c) + b``.)
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar import basic as ps
from pytensor.scalar.loop import ScalarLoop
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.graphs.graph import GraphLike, as_graph
from scanopt_cli.identity.encoding import Encoder

_SIZE = 16
_COMMUTATIVE = (ps.Add, ps.Mul, ps.AND, ps.OR, ps.XOR, ps.EQ, ps.NEQ)
# Part of every digest: a change of the canonical form must not look like a change of the graph.
_VERSION = b"scanopt-digest-1"


class Digests:
    """Digests of variables, each computed once.

    ``inputs`` are the graph's inputs; other roots that are no constants are opaque, the same as
    themselves only. A digest stays valid as long as nothing upstream of its variable is changed.
    With ``gradients``, Ops that compute the same but are differentiated otherwise (overrides of an
    OpFromGraph) are told apart; a rewrite that merges needs that.
    """

    def __init__(self, inputs: Iterable[Variable] = (), *, gradients: bool = False) -> None:
        self.opaque: list[str] = []
        self._gradients = gradients
        self._variables: dict[Variable, bytes] = {}
        # Keyed by identity: equality of Ops is what is computed here. The Op is kept alive with it.
        self._ops: dict[int, tuple[Op, bytes]] = {}
        self._graphs: dict[int, tuple[AbstractFunctionGraph, bytes]] = {}
        for position, variable in enumerate(inputs):
            self._variables[variable] = self._hash(b"input", position, variable.type)

    def of(self, variable: Variable) -> bytes:
        """Return the digest of ``variable``; it costs what is not known yet of what it needs."""
        waiting = [variable]
        while waiting:
            node = waiting[-1].owner
            if waiting[-1] in self._variables:
                waiting.pop()
            elif node is None:
                self._leaf(waiting.pop())
            elif unknown := [part for part in node.inputs if part not in self._variables]:
                waiting.extend(unknown)
            else:
                self._add(node)
        return self._variables[variable]

    def of_graph(self, graph: AbstractFunctionGraph) -> bytes:
        """Return the digest of a whole graph; of an inner graph, independent of this one."""
        known = self._graphs.get(id(graph))
        if known is None:
            inner = Digests(graph.inputs, gradients=self._gradients)
            inner._ops, inner._graphs, inner.opaque = self._ops, self._graphs, self.opaque
            for node in graph.toposort():
                inner._add(node)
            types = [variable.type for variable in graph.inputs]
            outputs = [inner.of(output) for output in graph.outputs]
            known = (graph, self._hash(b"graph", types, outputs))
            self._graphs[id(graph)] = known
        return known[1]

    def of_op(self, op: Op) -> bytes:
        """Return the digest of an Op: what it computes from whatever inputs."""
        known = self._ops.get(id(op))
        if known is None:
            known = (op, self._hash(b"op", *self._op_content(op)))
            self._ops[id(op)] = known
        return known[1]

    def _leaf(self, variable: Variable) -> bytes:
        known = self._variables.get(variable)
        if known is None:
            known = (
                self._hash(b"constant", variable)
                if isinstance(variable, Constant)
                else self._hash(b"root", variable)
            )
            self._variables[variable] = known
        return known

    def _add(self, node: Any) -> None:
        inputs = [
            self._leaf(variable) if variable.owner is None else self._variables[variable]
            for variable in node.inputs
        ]
        if commutes(node):
            inputs[:2] = sorted(inputs[:2])
        whole = self._hash(b"node", self.of_op(node.op), inputs)
        for position, output in enumerate(node.outputs):
            self._variables[output] = self._hash(b"output", whole, position)

    def _op_content(self, op: Op) -> tuple[Any, ...]:
        if isinstance(op, Scan):
            # Its name, its profile and how it collects garbage do not change what it computes.
            return ("scan", op.info, op.truncate_gradient, op.destroy_map, op.fgraph)
        if isinstance(op, OpFromGraph):
            content: tuple[Any, ...] = ("inner graph", op.destroy_map, op.fgraph)
            if self._gradients:
                overrides = (op.pullback_overrides, op.pushforward_overrides)
                content += (type(op), op.is_inline, overrides, op._connection_pattern)
            return content
        if isinstance(op, ScalarLoop):
            # Its properties leave out whether the last output is a condition.
            return (op, op.is_while)
        return (op,)

    def _hash(self, tag: bytes, *content: Any) -> bytes:
        digest = blake2b(_VERSION + tag, digest_size=_SIZE)
        encoder = Encoder(digest.update, self.of_graph, self.opaque)
        for item in content:
            encoder.encode(item)
        return digest.digest()


def digest(graph: GraphLike | AbstractFunctionGraph) -> str:
    """Return the canonical digest of ``graph`` as a hex string of 32 characters.

    Equal for graphs that compute the same outputs from the same inputs by the same operations, in
    every process and on every machine, whatever their variables are called. A graph with Ops that
    cannot be told by value has another digest in every process.

    Raises
    ------
    ScanoptError
        If ``graph`` is no graph.
    """
    fgraph = graph if isinstance(graph, AbstractFunctionGraph) else as_graph(graph).fgraph
    return Digests().of_graph(fgraph).hex()


def commutes(node: Any) -> bool:
    """Whether the first two inputs of ``node`` may be swapped without changing a bit.

    Not so for the maximum of 0.0 and -0.0, and for products of complex numbers.
    """
    op = node.op
    if not isinstance(op, Elemwise) or op.inplace_pattern:
        return False
    is_complex = str(node.outputs[0].type.dtype).startswith("complex")
    return isinstance(op.scalar_op, _COMMUTATIVE) and not is_complex
