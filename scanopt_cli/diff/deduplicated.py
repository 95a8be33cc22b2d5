"""Graphs without repetitions: of nodes that compute the same, only one is compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.operands import in_one_order
from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.ir.scan_view import is_loop


@dataclass(frozen=True, slots=True)
class DeduplicatedGraph:
    """A graph without repetitions; ``copies`` counts the nodes that each node stands for."""

    nodes: list[Apply]
    outputs: list[Variable]
    copies: Counter[Apply]


def deduplicated(graph: FunctionGraph, digests: Digests, *, loops: bool) -> DeduplicatedGraph:
    """Return ``graph`` with one node in place of all that repeat it.

    The nodes of ``graph`` are modified: they read the remaining nodes. Nodes that hold a graph are
    merged only with ``loops``. Nodes that read only constants, such as conversions, are not merged,
    so that each reader of a constant reports it.
    """
    first: dict[Hashable, Apply] = {}
    kept: dict[Variable, Variable] = {}
    copies: Counter[Apply] = Counter()
    nodes = list(graph.toposort())
    for node in nodes:
        node.inputs = [kept.get(variable, variable) for variable in node.inputs]
        if inner_graphs(node.op):
            key: Hashable = node_digest(digests, node) if loops else node
        elif _is_constant(node.outputs[0]):
            continue
        else:
            reads = [digests.of(v) if _is_constant(v) else v for v in node.inputs]
            key = node_key(digests.sameness.of_op(node.op), node, reads)
        same = first.setdefault(key, node)
        copies[same] += 1
        if same is not node:
            kept.update(_replacements(node, same, digests))
    outputs = [kept.get(output, output) for output in graph.outputs]
    needed, read = set(outputs), []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            read.append(node)
    return DeduplicatedGraph(read[::-1], outputs, copies)


def node_digest(digests: Digests, node: Apply) -> tuple[bytes, ...]:
    """Return the digest of all that ``node`` computes, whatever the order of a loop's slots."""
    if not is_loop(node):
        return (digests.of(node.outputs[0]),)
    return tuple(sorted(map(digests.of, node.outputs)))


def node_key(op: bytes, node: Apply, reads: Sequence[Hashable]) -> Hashable:
    """Return the key of what ``node`` computes, from those of its Op and of what it reads.

    Keys that are variables are compared by identity.
    """
    return op, tuple(in_one_order(node, reads, _order))


def count_loops(graph: FunctionGraph, digests: Digests) -> tuple[int, int]:
    """Return how many nodes hold a graph, and how many of these are distinct."""
    holders = [node for node in graph.apply_nodes if inner_graphs(node.op)]
    return len(holders), len({node_digest(digests, node) for node in holders})


def _replacements(node: Apply, same: Apply, digests: Digests) -> dict[Variable, Variable]:
    """Map each output of ``node`` to the output of ``same`` that replaces it."""
    found: dict[bytes, list[Variable]] = defaultdict(list)
    for output in reversed(same.outputs):
        found[digests.of(output)].append(output)
    kept = {output: found[digests.of(output)].pop() for output in node.outputs}
    for output, taken in kept.items():
        taken.name = taken.name or output.name
    return kept


def _is_constant(variable: Variable) -> bool:
    """Whether a variable is a constant, or its node reads only constants."""
    node = variable.owner
    parts = [variable] if node is None else node.inputs
    return all(isinstance(part, Constant) for part in parts)


def _order(key: Hashable) -> tuple[bool, object]:
    return (True, id(key)) if isinstance(key, Variable) else (False, repr(key))
