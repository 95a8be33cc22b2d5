"""Where nodes stand: how many of their kind come before them, and whether they always run."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

try:
    from pytensor.conditional.op import IfElse as IfElse
except ImportError:  # before PyTensor 3.3.1
    from pytensor.ifelse import IfElse as IfElse  # type: ignore[no-redef]


def levels(nodes: Collection[Apply], passed_over: Container[Apply] = ()) -> dict[Apply, int]:
    """Return for each of ``nodes`` how many of them the longest path to it has, itself included.

    Nodes of one level do not depend on one another, and there are as many levels as the longest
    chain has nodes: no other way to group independent nodes needs fewer groups (Mirsky, 1971).

    Parameters
    ----------
    nodes
        The nodes that count.
    passed_over
        Nodes that are known to depend on none of ``nodes``, which are not walked.
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


def always_computed(fgraph: FunctionGraph) -> set[Apply]:
    """Return the nodes that no evaluation of all outputs can do without.

    What only a branch of an ``IfElse`` reads is computed when that branch is taken.
    """
    found: set[Apply] = set()
    waiting: list[Iterable[Variable]] = [fgraph.outputs]
    while waiting:
        for variable in waiting.pop():
            node = variable.owner
            if node is not None and node not in found:
                found.add(node)
                waiting.append(node.inputs[:1] if isinstance(node.op, IfElse) else node.inputs)
    return found
