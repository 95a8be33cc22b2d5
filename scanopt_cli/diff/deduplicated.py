"""Graphs without what they repeat: of nodes that compute the same, one is enough to compare."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.equivalence.canonical import Digests
from scanopt_cli.equivalence.operands import commutes
from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.ir.scan_view import scan_op


@dataclass(frozen=True, slots=True)
class Once:
    """A graph without what it repeats; ``copies`` counts the nodes that one stands for."""

    nodes: list[Apply]
    outputs: list[Variable]
    copies: Counter[Apply]


def once(graph: FunctionGraph, digests: Digests, *, loops: bool) -> Once:
    """Return ``graph`` with one node in place of those that repeat it.

    The nodes of ``graph`` are changed to read what is left. Nodes that hold a graph are only made
    one with ``loops``, and a constant is told wherever it is read, whatever dresses it up there.
    """
    first: dict[Hashable, Apply] = {}
    place: dict[Variable, Variable] = {}
    copies: Counter[Apply] = Counter()
    nodes = list(graph.toposort())
    for node in nodes:
        node.inputs = [place.get(variable, variable) for variable in node.inputs]
        if inner_graphs(node.op):
            told: Hashable = node_digest(digests, node) if loops else node
        elif _is_constant(node.outputs[0]):
            continue
        else:
            reads = [digests.of(v) if _is_constant(v) else v for v in node.inputs]
            if is_swappable(node):
                reads[:2] = sorted(reads[:2], key=_order)
            told = digests.sameness.of_op(node.op), tuple(reads)
        same = first.setdefault(told, node)
        copies[same] += 1
        if same is not node:
            place.update(_places(node, same, digests))
    outputs = [place.get(output, output) for output in graph.outputs]
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    return Once(kept[::-1], outputs, copies)


def node_digest(digests: Digests, node: Apply) -> tuple[bytes, ...]:
    """Return the digest of all that ``node`` computes; the slots of a loop have no order."""
    if scan_op(node) is None:
        return (digests.of(node.outputs[0]),)
    return tuple(sorted(map(digests.of, node.outputs)))


def count_loops(graph: FunctionGraph, digests: Digests) -> tuple[int, int]:
    """Return how many nodes hold a graph, and how many of them differ."""
    holders = [node for node in graph.apply_nodes if inner_graphs(node.op)]
    return len(holders), len({node_digest(digests, node) for node in holders})


def _places(node: Apply, same: Apply, digests: Digests) -> dict[Variable, Variable]:
    """Which output of ``same`` takes the place of which of ``node``."""
    found: dict[bytes, list[Variable]] = defaultdict(list)
    for output in reversed(same.outputs):
        found[digests.of(output)].append(output)
    places = {output: found[digests.of(output)].pop() for output in node.outputs}
    for output, taken in places.items():
        taken.name = taken.name or output.name
    return places


def is_swappable(node: Apply) -> bool:
    """Whether the first two inputs of ``node`` may change places."""
    return len(node.inputs) > 1 and commutes(node)


def _is_constant(variable: Variable) -> bool:
    """Whether a variable is a constant, or one that is dressed up."""
    node = variable.owner
    parts = [variable] if node is None else node.inputs
    return all(isinstance(part, Constant) for part in parts)


def _order(token: Hashable) -> tuple[bool, object]:
    return (True, token) if isinstance(token, bytes) else (False, id(token))
