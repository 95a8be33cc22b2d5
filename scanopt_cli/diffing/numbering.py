"""Numbers for nodes that would compute the same if what is matched did."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diffing.alignment import is_swappable
from scanopt_cli.diffing.sides import Side
from scanopt_cli.diffing.slots import Token

type Numbers = dict[Hashable, int]
"""What tells a node: its Op and what it reads; and its number."""


def numbered(
    side: Side, matched: Container[Apply], token: Token, shared: Container[bytes], numbers: Numbers
) -> Iterator[tuple[Apply, int]]:
    """Yield the nodes of ``side`` that are not ``matched``, each with its number.

    Called for both sides with one ``numbers``, it gives equal numbers to nodes that apply the same
    Op to what corresponds. ``shared`` holds the digests that occur on both sides.
    """
    own: dict[Apply, int] = {}

    def known(variable: Variable) -> Hashable:
        maker = variable.owner
        if maker in own and side.digest(variable) not in shared:
            return own[maker], maker.outputs.index(variable)
        return token(variable)

    for node in side.nodes:
        if node in matched:
            continue
        reads = [known(variable) for variable in node.inputs]
        if is_swappable(node):
            reads[:2] = sorted(reads[:2], key=repr)
        told = side.op_digest(node.op), tuple(reads)
        own[node] = numbers.setdefault(told, len(numbers))
        yield node, own[node]
