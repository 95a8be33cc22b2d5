"""Value numbering of two graphs in which matched nodes are taken to be equal."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Sequence

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diff.deduplicated import in_one_order
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph, SharedKeys
from scanopt_cli.ir.scan_view import is_loop


def numbered(
    keys: SharedKeys, shared: Container[bytes], numbers: dict[Hashable, int]
) -> Iterator[tuple[Apply, int]]:
    """Yield the nodes of one side that are not matched, each with its number.

    Nodes of both sides get equal ``numbers`` if they apply equal Ops to equal inputs. ``shared``
    holds the digests that occur on both sides.
    """
    side = keys.side
    own: dict[Apply, int] = {}

    def known(variable: Variable) -> Hashable:
        maker = variable.owner
        if maker in own and side.digest(variable) not in shared:
            return own[maker], _output_mark(side, variable)
        # That of a matched variable is one object on both sides: the variable of the second side.
        return keys.token(variable)

    for node in keys.unmatched():
        reads = _in_one_order(side, node, [known(variable) for variable in node.inputs])
        key = side.op_digest(node.op), tuple(reads)
        own[node] = numbers.setdefault(key, len(numbers))
        yield node, own[node]


def _in_one_order(side: IndexedGraph, node: Apply, reads: Sequence[Hashable]) -> Sequence[Hashable]:
    """Return the keys of the inputs of ``node`` in an order that equal nodes share."""
    if not is_loop(node):
        return in_one_order(node, reads)
    slots = side.view(node).slots
    places = [place for place in side.form(node).order if slots[place].has_input]
    return [reads[0], *(reads[place + 1] for place in places)]


def _output_mark(side: IndexedGraph, variable: Variable) -> int:
    """Return the place of ``variable`` among its node's outputs.

    For a loop, a number for its slot and role, which does not depend on the order of the slots.
    """
    node = variable.owner
    if not is_loop(node):
        place: int = node.outputs.index(variable)
        return place
    slots, number = side.view(node).slots, side.slot_place(variable)
    if number is None:
        return -1
    rank = side.form(node).ranks[number]
    return rank if slots[number].outer_output is variable else rank + len(slots)
