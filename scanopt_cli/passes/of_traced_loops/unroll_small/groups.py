"""Which small arrays are worth computing entry by entry: those that few arrays are read for.

A small array that is read from an array which stays one, or is put into one, costs a read or a
write of each entry in every step, and the allocation of what is put together. That is saved where
all arrays around are small too; where they are not, it may be more than an operation on an array
costs. So arrays are taken in *groups*, of which each is computed from others of its group, and a
group is unrolled if it saves more than crosses its bounds.

Elementwise arithmetic and products of matrices lose by it, since compiled code computes several
entries at a time, in registers, as it does numbers; and they take far longer to compile entry by
entry. A group stays as it is where that is most of what it does, as of a batch of subjects, or of a
Kalman filter of three states. Systems of equations, choices among entries, and functions such as
exp gain: these are computed of several steps at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from scanopt_cli.ir.disjoint_sets import DisjointSets
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.loop.costs import is_costly
from scanopt_cli.passes.of_traced_loops.unroll_small.array_entries import MOVES, Unrolling

# About the nanoseconds of a step.
_ENTRY = 2
"""What it costs to read an entry from an array, or to write it into one."""
_ARRAY = 40
"""What it costs to make an array that is not one of the buffers of the loop."""
_ELEMENTWISE, _REDUCTION, _PRODUCT, _LINEAR_ALGEBRA = 4, 12, 20, 300
_WIDTH = 8
"""So many numbers exp and the like are computed of at a time."""
_VIEWS = (DimShuffle, ExtractDiag, Reshape, Shape, Shape_i, SpecifyShape, Subtensor)


@dataclass(slots=True)
class ArrayGroup:
    """Arrays that are computed from each other entry by entry.

    Attributes
    ----------
    nodes
        What computes them.
    inputs
        The states among them.
    n_crossing
        How many entries are read from arrays that stay, or put into some.
    n_formed
        How many arrays are put together.
    vector_work
        What entries cost beyond vectors, about: of elementwise arithmetic, and of products.
    other_work
        What arrays cost beyond their entries, about, of all else.
    """

    nodes: list[Apply] = field(default_factory=list)
    inputs: list[Variable] = field(default_factory=list)
    n_crossing: int = 0
    n_formed: int = 0
    vector_work: float = 0
    other_work: float = 0

    @property
    def n_computed(self) -> int:
        """How many nodes compute entries, and do not only move them."""
        return sum(not isinstance(node.op, MOVES) for node in self.nodes)

    @property
    def is_faster_in_vectors(self) -> bool:
        """Whether most of the work is arithmetic of which vectors compute several entries."""
        return self.vector_work > self.other_work

    @property
    def pays(self) -> bool:
        """Whether computing the arrays entry by entry saves more time than it takes."""
        if self.is_faster_in_vectors:
            return False
        cost = _ENTRY * self.n_crossing + _ARRAY * self.n_formed
        return not cost or not self.n_computed or sum(map(_saved, self.nodes)) >= cost


def groups(
    unrolling: Unrolling, states: Mapping[Variable, Variable], outer: Collection[Variable]
) -> Iterable[ArrayGroup]:
    """Return the groups of the arrays of a step.

    Parameters
    ----------
    unrolling
        The step, computed.
    states
        The states that are carried entry by entry, and their next values.
    outer
        The arrays that are the same in each step, of which reading entries is free.
    """
    members = DisjointSets[Variable]()
    for node in unrolling.unrolled:
        for v in (*node.inputs, *node.outputs):
            if _belongs(v, states, unrolling):
                members.unite(node.outputs[0], v)
    for state, following in states.items():
        members.find(state)
        if _belongs(following, states, unrolling):
            members.unite(state, following)
    found: dict[Variable, ArrayGroup] = {}

    def group_of(variable: Variable) -> ArrayGroup:
        return found.setdefault(members.find(variable), ArrayGroup())

    for state in states:
        group_of(state).inputs.append(state)
    crossing: set[tuple[int, Variable]] = set()
    for node in unrolling.unrolled:
        group = group_of(node.outputs[0])
        group.nodes.append(node)
        lost = _lost(node, unrolling)
        group.vector_work += max(0.0, lost)
        group.other_work += max(0.0, -lost)
        reads = [v for v in node.inputs if v in unrolling.read and v not in outer]
        if _reads_large(node, unrolling, outer):
            reads += node.outputs
        for v in reads:
            if (id(group), v) not in crossing:
                crossing.add((id(group), v))
                group.n_crossing += _size(v, unrolling)
    for v in unrolling.formed:
        if _belongs(v, states, unrolling):
            group_of(v).n_crossing += _size(v, unrolling)
            group_of(v).n_formed += 1
    return found.values()


def _belongs(variable: Any, states: Collection[Variable], unrolling: Unrolling) -> bool:
    """Whether an array is one of those that are computed or carried entry by entry."""
    return variable in states or unrolling.has_computed(variable)


def _reads_large(node: Apply, unrolling: Unrolling, outer: Collection[Variable]) -> bool:
    """Whether a node reads entries of an array that a step computes, and that is not small."""
    if not isinstance(node.op, Subtensor):
        return False
    array = node.inputs[0]
    return not (
        isinstance(array, Constant) or array in outer or unrolling.entries(array) is not None
    )


def _size(variable: Variable, unrolling: Unrolling) -> int:
    entries = unrolling.entries(variable)
    return 0 if entries is None else entries.size


def _lost(node: Apply, unrolling: Unrolling) -> float:
    """Return what entries cost beyond arrays, or the negative of what arrays cost beyond entries.

    As was measured of loops with their gradients, whose arrays have 4 to 16 entries.
    """
    size = _size(node.outputs[0], unrolling)
    if is_costly(node.op):
        return -(-size % _WIDTH)  # what is left of a vector is computed, too
    if isinstance(node.op, Elemwise):
        return max(0.0, 0.4 * size - 1.5)
    if isinstance(core_op(node.op), Dot):
        left = unrolling.entries(node.inputs[0])
        n_terms = size * left.shape[-1] if left is not None else 0
        return 0.5 * n_terms - 4.5
    if isinstance(node.op, AdvancedIncSubtensor):
        return -20
    if isinstance(node.op, AdvancedSubtensor):
        return -10
    if isinstance(node.op, IncSubtensor):
        return -4
    return -_LINEAR_ALGEBRA if _saved(node) >= _LINEAR_ALGEBRA else 0


def _saved(node: Apply) -> int:
    """Return what a node costs if it is computed as an array, apart from its entries."""
    op: Any = node.op
    count = 1
    if isinstance(op, Blockwise):
        batch = node.outputs[0].type.shape[: op.batch_ndim(node)]
        count, op = prod(n or 1 for n in batch), op.core_op
    if isinstance(op, _VIEWS):
        return 0
    if isinstance(op, Elemwise):
        return _ELEMENTWISE
    if isinstance(op, CAReduce):
        return _REDUCTION
    if isinstance(op, Dot):
        return _PRODUCT
    if isinstance(op, MOVES):
        return _ARRAY
    # The nodes inside of an Op are counted themselves.
    return 0 if hasattr(op, "fgraph") else _LINEAR_ALGEBRA * count
