"""Compute the small arrays of a loop entry by entry."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.tensor.math import Dot

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.errors import PassError
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.of_traced_loops.unroll_small.array_entries import (
    MOST_ENTRIES,
    MOVES,
)
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code, Why, because

if TYPE_CHECKING:
    from scanopt_cli.passes.of_traced_loops.unroll_small.step import Step

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
        lengths = Lengths(view.n_steps)
        shapes = {
            slot: shape
            for slot in view.of_kind(SlotKind.STATE, SlotKind.CONSTANT)
            if (shape := shape_of(slot, lengths)) is not None
        }
        # Passes look at loops again, and models have equal ones.
        loop, known = view.op, self._known(view, shapes, context)
        staying = _staying.setdefault(loop.fgraph, {})
        if known in staying:
            staying[known].say(view, context, names)
            return None
        view.unfreeze()
        kept: set[Slot] = set()
        left: set[Apply] = set()
        in_vectors = arrays_left = entries_left = 0
        # Products are many nodes entry by entry, and stay as a rule.
        is_estimate = not self.always and _has_products(view)
        while True:
            step = Step(view, self.size, shapes, kept, left, is_estimate=is_estimate)
            changing = step.changing_states()
            for slot in changing:
                del shapes[slot]
            read = {slot for slot in step.states if slot in shapes and not step.computes(slot)}
            kept |= read
            if changing or read:
                continue
            losing = [group for group in step.groups() if not group.pays]
            if self.always or not losing:
                if not is_estimate or not _unrolls(step, context):
                    break
                is_estimate = False
                continue
            for group in losing:
                left.update(group.nodes)
                kept |= {slot for slot in step.states if slot.inner_inputs[0] in group.inputs}
                if group.is_faster_in_vectors:
                    in_vectors += group.n_computed
                else:
                    arrays_left += group.n_computed
                    entries_left += group.n_crossing
        unknown = tuple(view.slots.index(slot) for slot in step.unknown())
        left_out = _LeftOut(in_vectors, arrays_left, entries_left, unknown)
        left_out.say(view, context, names)
        if step.unrolling.n_entries > MOST_ENTRIES:
            context.missed(view, Code.LOOP_LEFT, because(Why.ENTRIES_MANY, count=MOST_ENTRIES))
            return None
        if not _unrolls(step, context):
            staying[known] = left_out
            return None
        count = step.unrolling.n_arrays or len(_carried(step, context))
        context.passed(view, Code.ARRAYS_UNROLLED, count=count)
        return step.rebuild(context, names)

    def _known(
        self, view: LoopView, shapes: Mapping[Slot, Sequence[int | None]], context: PassContext
    ) -> Hashable:
        """Return all that decides, beside the body, whether arrays become numbers."""
        slots = (
            (slot.kind, shapes.get(slot), bool(context.clients(slot.outer_output)))
            for slot in view.slots
        )
        return self, view.op.is_while, *slots


class _LeftOut(NamedTuple):
    """What a step goes on computing as arrays.

    Attributes
    ----------
    in_vectors
        How many arrays are computed faster so.
    arrays, entries
        How many others there are, and how many of their entries would be read or put together.
    unknown
        The positions of the slots that are arrays since no length of them is known.
    """

    in_vectors: int
    arrays: int
    entries: int
    unknown: tuple[int, ...]

    def say(self, view: LoopView, context: PassContext, names: Mapping[Slot, str]) -> None:
        """Remark on the arrays of a loop."""
        if self.in_vectors:
            faster = Why.VECTORS_FASTER
            context.missed(view, Code.SMALL_ARRAYS_LEFT, faster, arrays=self.in_vectors)
        if self.arrays:
            cross = because(Why.ENTRIES_CROSS, entries=self.entries)
            context.missed(view, Code.SMALL_ARRAYS_LEFT, cross, arrays=self.arrays)
        for position in self.unknown:
            name = names[view.slots[position]]
            context.missed(view, Code.ARRAYS_KEPT, Why.SHAPE_UNKNOWN, name)


_staying: WeakKeyDictionary[FrozenFunctionGraph, dict[Hashable, _LeftOut]] = WeakKeyDictionary()
"""What is left out of loops that stay as they are: by the body, and by what decides besides."""


def _unrolls(step: Step, context: PassContext) -> bool:
    """Whether arrays of a step are computed entry by entry, or carried so."""
    return bool(step.unrolling.n_arrays or _carried(step, context))


def _carried(step: Step, context: PassContext) -> list[Slot]:
    """Return the states that are carried entry by entry, and not traced.

    The arrays are formed after the loop.
    """
    return [slot for slot in step.states if not context.clients(slot.outer_output)]


def _has_products(view: LoopView) -> bool:
    return any(isinstance(core_op(node.op), Dot) for node in view.op.fgraph.apply_nodes)


def _computes_with_arrays(view: LoopView) -> bool:
    """Whether a step carries arrays, or computes something of them or into them.

    Rows and entries that are only read are no reason to compute all nodes behind them anew.
    """
    states = (v for slot in view.of_kind(SlotKind.STATE) for v in slot.inner_inputs)
    computing = (node for node in view.op.fgraph.apply_nodes if not isinstance(node.op, MOVES))
    of_nodes = (v for node in computing for v in (*node.inputs, *node.outputs))
    return any(getattr(v.type, "ndim", 0) for v in chain(states, of_nodes))
