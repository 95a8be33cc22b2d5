"""The position of nodes in a graph: their level, and whether every evaluation computes them."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

from pytensor.graph.basic import Apply, Variable

try:
    from pytensor.conditional.op import IfElse as IfElse
except ImportError:  # before PyTensor 3.3.1
    from pytensor.ifelse import IfElse as IfElse  # type: ignore[no-redef]


def levels(nodes: Collection[Apply], passed_over: Container[Apply] = ()) -> dict[Apply, int]:
    """Return the level of each of ``nodes``: how many of them lie on the longest path to it.

    The path includes the node itself. Nodes of one level do not depend on one another, and there
    are as many levels as the longest chain has nodes, so no partition into independent sets has
    fewer parts (Mirsky, 1971).

    Parameters
    ----------
    nodes
        The nodes to count.
    passed_over
        Nodes known to depend on none of ``nodes``; the traversal stops at them.
    """
    counted = set(nodes)
    found: dict[Apply, int] = {}
    for start in nodes:
        waiting = [start]
        while waiting:
            node = waiting[-1]
            if node in found:
                waiting.pop()
                continue
            before = [
                variable.owner
                for variable in node.inputs
                if variable.owner is not None and variable.owner not in passed_over
            ]
            missing = [other for other in before if other not in found]
            if missing:
                waiting += missing
                continue
            found[node] = max((found[other] for other in before), default=0) + (node in counted)
            waiting.pop()
    return {node: found[node] for node in nodes}


def always_computed(outputs: Iterable[Variable]) -> set[Apply]:
    """Return the nodes that every evaluation of all ``outputs`` computes.

    A node that only one branch of an ``IfElse`` reads is computed only if that branch is taken.
    """
    found: set[Apply] = set()
    waiting: list[Iterable[Variable]] = [outputs]
    while waiting:
        for variable in waiting.pop():
            node = variable.owner
            if node is not None and node not in found:
                found.add(node)
                waiting.append(node.inputs[:1] if isinstance(node.op, IfElse) else node.inputs)
    return found
