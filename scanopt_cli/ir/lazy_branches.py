"""Keeps branches that are not taken from being computed where PyTensor works in place.

PyTensor's virtual machine computes one branch of an ``IfElse``, and the other one never. But before
a node overwrites memory, it computes everything else that reads this memory, in whichever branch it
is, and what that is computed of. There are two ways to such a node:

1. What an ``IfElse`` returns is a view of the branch: what is computed of it in place waits for the
   other readers of the memory, in the branch (``0.1 * ifelse(c, inv(w).sum()[None], zeros)``).
2. What a branch reads is overwritten by a node outside of it.

So an error of a branch is raised that is not taken.

Linkers of other kinds compute both branches, but for nodes that only one ``IfElse`` reads, which
PyTensor moves into functions of the branches (``LazyIfElse``). So what two of them read under one
condition is computed whatever the condition is. They are merged before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import apply_ancestors
from pytensor.graph.utils import InconsistencyError
from pytensor.link.vm import VMLinker

from scanopt_cli.ir.levels import IfElse, always_computed


class LazyBranches(Feature):
    """Refuses to have a node work in place that would have a branch computed that is not taken."""

    def on_validate(self, fgraph: FunctionGraph) -> None:
        """Raise an error if a node waits for another one that would not be computed without it."""
        if computed_too_often(fgraph):
            raise InconsistencyError("a branch would be computed that is not taken")

    def clone(self) -> LazyBranches:
        """Return a feature for another graph."""
        return type(self)()


def keep_branches_lazy(fgraph: FunctionGraph, mode: Mode | None) -> None:
    """Have ``fgraph`` refuse to work in place where branches would be computed for it.

    A graph in which that is so already stays as it is: it would refuse every rewrite. So do graphs
    for other linkers than the virtual machine's: they compute both branches, or have functions of
    them.
    """
    if mode is not None and not isinstance(mode.linker, VMLinker):
        return
    has_branches = any(isinstance(node.op, IfElse) for node in fgraph.apply_nodes)
    is_kept = any(isinstance(feature, LazyBranches) for feature in fgraph._features)
    if has_branches and not is_kept and not computed_too_often(fgraph):
        fgraph.attach_feature(LazyBranches())


def merge_conditionals(fgraph: FunctionGraph, mode: Mode | None) -> None:
    """Merge the ``IfElse`` nodes of one condition that read nodes in common, in place.

    Only nodes are merged that are computed whatever the conditions are, and of which neither reads
    the other. The virtual machine computes one branch anyway.
    """
    if mode is not None and isinstance(mode.linker, VMLinker):
        return
    merged: dict[Variable, Apply] = {}
    always = always_computed(fgraph.outputs)
    for node in fgraph.toposort():
        if not isinstance(node.op, IfElse) or node not in always:
            continue
        first = merged.get(node.inputs[0])
        if first is None or not _may_merge(first, node):
            merged.setdefault(node.inputs[0], node)
            continue
        counts = (first.op.n_outs, node.op.n_outs)
        (a, b), (c, d) = (
            (each.inputs[1 : 1 + count], each.inputs[1 + count :])
            for each, count in zip((first, node), counts, strict=True)
        )
        one = IfElse(sum(counts)).make_node(node.inputs[0], *a, *c, *b, *d)
        pairs = zip([*first.outputs, *node.outputs], one.outputs, strict=True)
        fgraph.replace_all(list(pairs), reason="merge_conditionals")
        merged[node.inputs[0]] = one


def _may_merge(first: Apply, second: Apply) -> bool:
    """Whether two nodes read one that they alone may need, and neither reads the other."""
    read = [set(apply_ancestors(node.inputs[1:])) for node in (first, second)]
    needed = always_computed([first.inputs[0], second.inputs[0]])
    return bool((read[0] & read[1]) - needed) and first not in read[1] and second not in read[0]


def computed_too_often(fgraph: FunctionGraph) -> bool:
    """Whether a node that works in place waits for one that is computed for nothing else.

    That is so if something needs the node, and does not need what it waits for. What is needed at
    once are the outputs, or all results of a branch.
    """
    handler: Any = getattr(fgraph, "destroy_handler", None)
    waiting = handler.orderings(fgraph, ordered=False) if handler is not None else {}
    if not waiting:
        return False
    always = always_computed(fgraph.outputs)
    pairs = [(node, other) for node, before in waiting.items() for other in before - always]
    if not pairs:
        return False
    return any(
        node in needed and other not in needed
        for needed in (always, *map(always_computed, _branches(fgraph.apply_nodes)))
        for node, other in pairs
    )


def _branches(nodes: Iterable[Apply]) -> list[list[Variable]]:
    """Return the results of each branch."""
    found = []
    for node in nodes:
        if isinstance(node.op, IfElse):
            count = node.op.n_outs
            found += [node.inputs[1 : 1 + count], node.inputs[1 + count :]]
    return found
