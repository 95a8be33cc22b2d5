"""Which OpFromGraphs a graph and its bodies apply, and where: equal ones count as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op

from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.connection_patterns import declared_pattern
from scanopt_cli.ir.inner_graphs import core_op, inner_graphs, is_own_graph
from scanopt_cli.loop.memory import memory_of
from scanopt_cli.remarks import Reason, Why, because

type GraphKey = tuple[object, ...]
"""What tells an OpFromGraph from those that compute, or are differentiated, otherwise."""


@dataclass(eq=False, slots=True)
class AppliedGraph:
    """An OpFromGraph, and the nodes that apply it or an equal one, directly or in a Blockwise.

    Attributes
    ----------
    op
        The first of the equal Ops.
    nodes
        Each node, with the graph that it is in; those of one body once, however many loops run it.
    """

    op: OpFromGraph
    nodes: list[tuple[Apply, AbstractFunctionGraph]] = field(default_factory=list)


def applied_graphs(
    whole: AbstractFunctionGraph, sameness: Sameness
) -> dict[GraphKey, AppliedGraph]:
    """Return the OpFromGraphs of a program's own that a graph and its bodies apply."""
    found: dict[GraphKey, AppliedGraph] = {}
    for graph in _graphs(whole):
        for node in graph.toposort():
            if is_own_graph(core_op(node.op)):
                op = cast(OpFromGraph, core_op(node.op))
                applied = found.setdefault(graph_key(op, sameness), AppliedGraph(op))
                applied.nodes.append((node, graph))
    return found


def graph_key(op: Op, sameness: Sameness) -> GraphKey:
    """Return the key of an OpFromGraph, or of the one that a Blockwise applies; not of its name.

    PyTensor stores static lengths that it inferred of the graph inside in the types of the outputs.
    """
    core = cast(OpFromGraph, core_op(op))
    types = (v.type for v in (*core.fgraph.inputs, *core.fgraph.outputs))
    return (sameness.of_op(core), *types)


def why_it_stays(op: OpFromGraph) -> Reason | None:
    """Return why an OpFromGraph must be applied as it is, ``None`` if it need not.

    Rewrites and code of other packages find a subclass by its class, and rely on its inputs and
    outputs. What a program says of derivatives is lost without the Op.
    """
    if type(op) is not OpFromGraph:
        return because(Why.SUBCLASS, what=type(op).__name__)
    if op.pullback_overrides is not None or op.pushforward_overrides is not None:
        return because(Why.GRADIENT_GIVEN)
    if declared_pattern(op) is not None:
        return because(Why.CONNECTIONS_GIVEN)
    if op.destroy_map or is_in_place(op.fgraph):
        return because(Why.IN_PLACE, what="it")
    return None


def is_in_place(graph: AbstractFunctionGraph) -> bool:
    """Whether a node of a graph works in place."""
    return any(node.op.destroy_map for node in graph.apply_nodes)


def lends_memory(body: AbstractFunctionGraph, old: Variable, new: Variable) -> bool:
    """Whether a body would return its own input, or a view of it, if it read ``new`` for ``old``.

    What an OpFromGraph returns is a copy. PyTensor confuses a row of a buffer that a step returns
    with the row that it writes.
    """
    return memory_of(new).owner is None and old in map(memory_of, body.outputs)


def _graphs(whole: AbstractFunctionGraph) -> Iterator[AbstractFunctionGraph]:
    """Yield a graph and the bodies in it, at any depth, each distinct one once."""
    waiting, seen = [whole], {id(whole)}
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.toposort():
            for body in inner_graphs(node.op):
                if id(body) not in seen:
                    seen.add(id(body))
                    waiting.append(body)
