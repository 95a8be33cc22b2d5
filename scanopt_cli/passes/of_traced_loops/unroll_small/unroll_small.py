"""Compute the small arrays of a loop entry by entry."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.errors import PassError
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.of_traced_loops.unroll_small.array_entries import (
    MOST_ENTRIES,
    MOVES,
)
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code, Why, because

_LARGEST = 64
"""The largest ``size``: a product of two 8x8 matrices takes 960 operations."""


@dataclass(frozen=True)
class UnrollSmall(TracedLoopPass):
    """Compute the small arrays of a TracedLoop entry by entry, so that a step works on numbers.

    A state, a constant or a row of a constant is small if its shape is known and has at most
    ``size`` entries; so is what a step computes of small arrays.

    Legal cases:

    1. Elementwise arithmetic, sums, products, extrema, ``all`` and ``any``.
    2. What moves entries: transposes, reshapes, joins, reads and writes at constant indices. One
       number that is written where a mask says is chosen for each entry.
    3. Products of vectors and matrices, outer products, diagonals; inverses, determinants,
       Cholesky factors, and solutions of systems of equations, triangular or not.
    4. An OpFromGraph (softmax, logsumexp), of which the graph inside is computed in its place.
    5. The same in a Blockwise, for each entry of the batch.
    6. A read of a row whose entries are small, of an array of any length.
    7. Reads and writes at integers that vary, of arrays that a step carries or computes: what is
       read is chosen among the entries, and each entry is written if the index is its own. An index
       that is out of bounds raises an IndexError, as before. All indices of a node choose among at
       most 64 entries; an array of one entry stays.

    Each entry of a small state becomes a state of its own. The array itself is formed only where it
    is traced, or read by a node that none of these cases covers; such nodes stay as they are.

    Preconditions: a step keeps the shape of a state, and computes at most 2,000 entries, counted
    with the terms that each adds up. No step works in place. Small arrays that are computed from
    each other, over all steps, are a group, which is unrolled if that saves more time than it
    takes: by an estimate, operations on arrays against the entries that are read from arrays which
    stay, or put into them. Rows of constants are read, and traces written, for nothing. A group
    that does little but elementwise arithmetic of four entries or more, such as a batch of
    subjects, or products of matrices, such as a Kalman filter of three states, stays as it is:
    compiled code has small arrays in registers, too, computes several entries of a vector at a
    time, and is compiled in a fraction of the time. What gains is linear algebra, choices among
    entries, and functions such as exp of few entries, which are computed for several steps at a
    time. With ``always``, all that is small becomes numbers.

    Sums and products of several terms are added from first to last, so the last digits may differ
    from those of PyTensor's order.
    """

    name: ClassVar[str] = "unroll-small"
    accepts_in_place: ClassVar[bool] = False
    size: int = 16
    """the most entries of an array that is unrolled, up to 64"""
    always: bool = False
    """whether arrays are unrolled even where compiled code is as fast with them"""

    def __post_init__(self) -> None:
        """Check the size."""
        if not 1 <= self.size <= _LARGEST:
            raise PassError(f"size is a number from 1 to {_LARGEST}, not {self.size}")

    def rewrite(self, view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop of numbers."""
        if not _computes_with_arrays(view):
            return None
        # Of loops over numbers, there is nothing to unroll.
        from scanopt_cli.passes.of_traced_loops.unroll_small.step import Step, shape_of

        names = context.names(view)
        view.unfreeze()
        lengths = Lengths(view.n_steps)
        shapes = {
            slot: shape
            for slot in view.of_kind(SlotKind.STATE, SlotKind.CONSTANT)
            if (shape := shape_of(slot, lengths)) is not None
        }
        kept: set[Slot] = set()
        left: set[Apply] = set()
        in_vectors = arrays_left = entries_left = 0
        while True:
            step = Step(view, self.size, shapes, kept, left)
            changing = step.changing_states()
            for slot in changing:
                del shapes[slot]
            read = {slot for slot in step.states if slot in shapes and not step.computes(slot)}
            kept |= read
            if changing or read:
                continue
            losing = [group for group in step.groups() if not group.pays]
            if self.always or not losing:
                break
            for group in losing:
                left.update(group.nodes)
                kept |= {slot for slot in step.states if slot.inner_inputs[0] in group.inputs}
                if group.is_faster_in_vectors:
                    in_vectors += group.n_computed
                else:
                    arrays_left += group.n_computed
                    entries_left += group.n_crossing
        if in_vectors:
            context.missed(view, Code.SMALL_ARRAYS_LEFT, Why.VECTORS_FASTER, arrays=in_vectors)
        if arrays_left:
            context.missed(
                view,
                Code.SMALL_ARRAYS_LEFT,
                because(Why.ENTRIES_CROSS, entries=entries_left),
                arrays=arrays_left,
            )
        for slot in step.unknown():
            context.missed(view, Code.ARRAYS_KEPT, Why.LENGTH_UNKNOWN, names[slot])
        if step.unrolling.n_entries > MOST_ENTRIES:
            context.missed(view, Code.LOOP_LEFT, because(Why.ENTRIES_MANY, count=MOST_ENTRIES))
            return None
        # Arrays that are carried, and not traced, are formed after the loop.
        carried = [slot for slot in step.states if not context.clients(slot.outer_output)]
        if not step.unrolling.n_arrays and not carried:
            return None
        count = step.unrolling.n_arrays or len(carried)
        context.passed(view, Code.ARRAYS_UNROLLED, count=count)
        return step.rebuild(context, names)


def _computes_with_arrays(view: LoopView) -> bool:
    """Whether a step carries arrays, or computes something of them or into them.

    Rows and entries that are only read are no reason to compute all nodes behind them anew.
    """
    states = (v for slot in view.of_kind(SlotKind.STATE) for v in slot.inner_inputs)
    computing = (node for node in view.op.fgraph.apply_nodes if not isinstance(node.op, MOVES))
    of_nodes = (v for node in computing for v in (*node.inputs, *node.outputs))
    return any(getattr(v.type, "ndim", 0) for v in chain(states, of_nodes))
