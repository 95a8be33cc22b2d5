"""Evidence that two nodes are one node before and after a change, from strong to weak.

`fits_as_reader`: two nodes of one Op that read partners may be one. `are_alike`: two nodes may be
one of which the Op changed. `similar_pairs`: two nodes anywhere share half of what is around them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from itertools import product

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.slot_pairing import pair_slots
from scanopt_cli.ir.inner_graphs import core_op, inner_graphs, op_name
from scanopt_cli.ir.scan_view import is_loop, loop_op

# How many readers of a variable are examined.
_READERS = 8
# A trait that more nodes have on both sides is skipped: it says little, and to compare all of them
# would be quadratic.
_COMMON = 16
# With how many others a loop is compared by its slots.
_COMPARED = 16
# PyTensor's name for a Scan without a name.
_UNNAMED = "scan_fn"


def fits_as_reader(matching: Matching, node: Apply, other: Apply, anchor: int) -> bool:
    """Whether two free nodes of the same Op match by more than the input at ``anchor``.

    Either their other inputs may correspond, or they share a reader.
    """
    if not matching.is_free(node, other) or len(node.inputs) != len(other.inputs):
        return False
    pairs = zip(node.inputs, other.inputs, strict=True)
    return all(
        place == anchor or may_correspond(matching, *pair) for place, pair in enumerate(pairs)
    ) or _share_readers(matching, node, other)


def may_correspond(matching: Matching, variable: Variable, other: Variable) -> bool:
    """Whether two variables correspond, are constants, or are made by unmatched nodes of one Op."""
    if matching.correspond(variable, other):
        return True
    if isinstance(variable, Constant) or isinstance(other, Constant):
        return isinstance(variable, Constant) and isinstance(other, Constant)
    maker, other_maker = variable.owner, other.owner
    if maker is None or other_maker is None:
        return False
    return matching.is_free(maker, other_maker) and matching.same_op(maker, other_maker)


def are_alike(matching: Matching, node: Apply, other: Apply) -> bool:
    """Whether two nodes may be one node whose Op changed."""
    core, other_core = core_op(node.op), core_op(other.op)
    if type(core) is not type(other_core):
        return False
    if is_loop(node) and is_loop(other):
        return _loops_alike(matching, node, other)
    if inner_graphs(node.op) and op_name(node.op) == op_name(other.op):
        return True
    if isinstance(core, Elemwise) and len(node.inputs) != len(other.inputs):
        return False
    if not node.inputs and not other.inputs:
        return True
    return len(node.outputs) == len(other.outputs) and any(
        may_correspond(matching, *pair) for pair in zip(node.inputs, other.inputs, strict=False)
    )


def grouped_readers(
    graph: IndexedGraph, readers: Iterable[tuple[Apply, int]], *, constants: bool = False
) -> dict[Hashable, list[tuple[Apply, int]]]:
    """Group the readers of a variable by their Op and by the input at which they read it.

    With ``constants``, also by the constants that they read.
    """
    groups: dict[Hashable, list[tuple[Apply, int]]] = defaultdict(list)
    for node, place in readers:
        read = graph.constants_read(node) if constants else 0
        groups[graph.op_digest(node.op), place, read].append((node, place))
    return groups


def similar_pairs(matching: Matching) -> list[tuple[Apply, Apply]]:
    """Return unmatched nodes of one Op that share at least half of their traits, the best first.

    They may be anywhere in the graphs: this is the last resort of matching. Two loops may have
    different bodies; if they are alike, one shared trait is enough.
    """
    nodes, others = (matching.unmatched(graph) for graph in matching.graphs)
    traits = [_traits(matching, matching.before, node) for node in nodes]
    other_traits = [_traits(matching, matching.after, other) for other in others]
    having, others_having = _by_trait(traits), _by_trait(other_traits)
    shared = Counter(
        pair
        for trait, positions in having.items()
        if min(len(positions), len(others_having[trait])) <= _COMMON
        for pair in product(positions, others_having[trait])
    )
    found = []
    compared: Counter[Apply] = Counter()
    for position, other_position in sorted(shared, key=lambda pair: (-shared[pair], pair)):
        node, other = nodes[position], others[other_position]
        count = shared[position, other_position]
        is_found = 2 * count >= max(len(traits[position]), len(other_traits[other_position]))
        if not is_found and is_loop(node):
            compared.update((node, other))
            most = max(compared[node], compared[other])
            is_found = most <= _COMPARED and are_alike(matching, node, other)
        if is_found:
            found.append((node, other))
    return found


def _by_trait(traits: Iterable[set[Hashable]]) -> dict[Hashable, list[int]]:
    index: dict[Hashable, list[int]] = defaultdict(list)
    for number, of_node in enumerate(traits):
        for trait in of_node:
            index[trait].append(number)
    return index


def _traits(matching: Matching, graph: IndexedGraph, node: Apply) -> set[Hashable]:
    """Return what a node reads and what reads it, each with its own Op, comparable across sides."""
    loop = loop_op(node)
    own: Hashable = type(loop).__name__ if loop is not None else graph.op_digest(node.op)
    traits: set[Hashable] = {
        (own, place if loop is None else None, matching.key(graph, variable))
        for place, variable in enumerate(node.inputs)
    }
    for output in node.outputs:
        for reader, place in graph.readers.get(output, ())[:_COMMON]:
            pair = matching.pairs.get(reader)
            # An unmatched reader is a trait that no node of the other side has.
            traits.add((own, place, reader if pair is None else pair.other))
    if loop is not None:
        traits.add((own, "name", op_name(node.op)))
        traits.add((own, "body", graph.op_digest(node.op)))
    return traits


def _loops_alike(matching: Matching, node: Apply, other: Apply) -> bool:
    name = op_name(node.op)
    if name == op_name(other.op) and not name.endswith(_UNNAMED):
        return True
    if matching.same_op(node, other):
        return True
    slots, others = matching.before.view(node).slots, matching.after.view(other).slots
    fewer, more = sorted((len(slots), len(others)))
    # Half of all slots match, or a loop has lost or gained some and kept all others.
    enough = min(fewer, (more + 1) // 2)
    # Inputs pair with inputs only, and results with results.
    counts, counted = (Counter(s.outer_output is None for s in part) for part in (slots, others))
    if (counts & counted).total() < enough:
        return False
    return len(pair_slots(matching, node, other)) >= enough


def _share_readers(matching: Matching, node: Apply, other: Apply) -> bool:
    """Whether the same Op reads two nodes at the same input, or both make one paired output."""
    ends = set(matching.outputs)
    for outputs in zip(node.outputs, other.outputs, strict=False):
        read, other_read = (
            grouped_readers(graph, graph.readers.get(output, ())[:_READERS]).keys()
            for graph, output in zip(matching.graphs, outputs, strict=True)
        )
        made = (
            g.output_positions.get(output, ())
            for g, output in zip(matching.graphs, outputs, strict=True)
        )
        if read & other_read or not ends.isdisjoint(product(*made)):
            return True
    return False
