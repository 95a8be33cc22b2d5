"""Value numbering of two graphs in which matched nodes are taken to be equal."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Sequence

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diff.deduplicated import is_swappable
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.shared_keys import Token
from scanopt_cli.ir.scan_view import is_loop


class Numbers:
    """Gives nodes of both sides equal numbers if they apply equal Ops to equal inputs."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, side: IndexedGraph, node: Apply, reads: Sequence[Hashable]) -> int:
        """Return the number of a node of ``side`` whose inputs have the keys ``reads``."""
        if is_loop(node):
            # The order of its slots does not count.
            ranks, slots = side.form(node).ranks, side.view(node).slots
            ordered = sorted(range(len(ranks)), key=ranks.__getitem__)
            reads = [reads[0], *(reads[at + 1] for at in ordered if slots[at].has_input)]
        elif is_swappable(node):
            reads = [*sorted(reads[:2], key=_order), *reads[2:]]
        key = side.op_digest(node.op), tuple(reads)
        return self._numbers.setdefault(key, len(self._numbers))


def numbered(
    side: IndexedGraph,
    matched: Container[Apply],
    token: Token,
    shared: Container[bytes],
    numbers: Numbers,
) -> Iterator[tuple[Apply, int]]:
    """Yield the nodes of ``side`` that are not ``matched``, each with its number.

    ``shared`` holds the digests that occur on both sides.
    """
    own: dict[Apply, int] = {}

    def known(variable: Variable) -> Hashable:
        maker = variable.owner
        if maker in own and side.digest(variable) not in shared:
            return own[maker], output_mark(side, variable)
        return token(variable)

    for node in side.nodes:
        if node not in matched:
            own[node] = numbers.number(side, node, [known(variable) for variable in node.inputs])
            yield node, own[node]


def output_mark(side: IndexedGraph, variable: Variable) -> int:
    """Return the place of ``variable`` among its node's outputs.

    For a loop, a number for its slot and role, which does not depend on the order of the slots.
    """
    node = variable.owner
    if not is_loop(node):
        place: int = node.outputs.index(variable)
        return place
    slots = side.view(node).slots
    for slot, rank in zip(slots, side.form(node).ranks, strict=True):
        if slot.outer_output is variable:
            return rank
        if slot.last is variable:
            return rank + len(slots)
    return -1


def _order(token: Hashable) -> tuple[bool, object]:
    # On both sides, the key of a matched variable is one object: the variable of the second side.
    return (True, id(token)) if isinstance(token, Variable) else (False, repr(token))
