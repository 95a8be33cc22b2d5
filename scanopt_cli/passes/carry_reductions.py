"""Carry sums, products, maxima and minima of a trace in the loop, instead of the trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Max, Prod, Sum

from scanopt_cli.analysis.accesses.accesses import Access, accesses_of_outputs
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.count_variables import as_count
from scanopt_cli.analysis.initial_buffers import with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code, Why, because


@dataclass(frozen=True)
class CarryReductions(ScanPass):
    """Carry the sum, product, mean, maximum or minimum of a trace in the loop.

    `save-mem` then keeps no trace for it. Run `normalize-reads` before, since a mean reads a length
    as well. The pass is in no preset: the terms of a sum are added in another order, so the last
    bits of floats differ.

    Legal cases:

    1. The only readers of a trace are ``xs.sum()``, ``prod``, ``mean``, ``max`` or ``min`` over
       time, and readers of last rows. Each reduction becomes a state that every step updates. Sums
       and products are carried in their accumulator dtype. A reduction carries whole rows if it
       leaves an axis of the row, or if it is a maximum or minimum of a state; otherwise each step
       reduces its row to one number.

    Preconditions: the buffer provably holds every step. The loop has no stop condition and is not
    batched. A maximum or minimum needs a loop that provably runs at least one step, since it raises
    for none.

    Out of scope: reductions that would carry whole rows of a nit_sot (whose shape is not known
    before the loop), and products over axes of such rows.
    """

    name: ClassVar[str] = "carry-reductions"

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return reductions as the last rows of new states, where nothing else needs the trace."""
        if view.is_while or view.batch_ndim:
            return None
        lengths = Lengths(view.n_steps)
        names = context.names(view)
        accesses = accesses_of_outputs(view, context.clients)
        found = [
            reduction
            for slot in view.of_kind(*TRACED)
            if is_whole(view, slot, lengths)
            for reduction in _reductions(slot, accesses[slot], context)
        ]
        found = [one for one in found if _fits(one, view, names, lengths, context)]
        count = as_count(lengths.steps + 1)
        if not found or count is None:
            return None
        for one in found:
            name = type(one.op).__name__.lower()
            context.passed(view, Code.REDUCTION_CARRIED, names[one.slot], op=name)
        view.unfreeze()
        added = {one: _add_state(view, one, count) for one in found}
        results = view.rebuild()
        replaced: dict[Variable, Variable] = {}
        for one, placeholder in added.items():
            states: Any = results.pop(placeholder)
            replaced[one.node.outputs[0]] = one.result(states[-1])
        return replaced | results


@dataclass(slots=True, eq=False)
class _Reduction:
    """``node``, which reduces all steps of ``slot``, or their negatives, over time and ``axes``.

    ``axes`` are axes of a row.
    """

    slot: Slot
    node: Apply
    axes: tuple[int, ...]
    is_negated: bool

    @property
    def op(self) -> Any:
        """The reducing Op."""
        return self.node.op

    @property
    def inside(self) -> bool:
        """Whether each step reduces its row to a number.

        A maximum over a row costs more in the loop than the elementwise maximum of two rows.
        """
        is_row = self.slot.kind is not SlotKind.NIT_SOT and isinstance(self.op, Max)
        ndim: int = self.slot.inner_outputs[0].type.ndim
        return len(self.axes) == ndim and not (ndim and is_row)

    @property
    def dtype(self) -> str:
        """The dtype of the carry."""
        if isinstance(self.op, Max):
            return str(self.node.outputs[0].type.dtype)
        return str(self.op.acc_dtype)

    @property
    def start(self) -> Any:
        """The initial carry, which is the result over no steps."""
        kind = np.dtype(self.dtype)
        if not isinstance(self.op, Max):
            return np.asarray(int(isinstance(self.op, Prod)), dtype=kind)
        return np.asarray(-np.inf if kind.kind == "f" else np.iinfo(kind).min, dtype=kind)

    def of_row(self, row: Any) -> Any:
        """Return what a step contributes to the carry."""
        row = -row if self.is_negated else row
        if isinstance(self.op, Max):
            return Max(axis=self.axes)(row) if self.inside and self.axes else row
        row = row if row.type.dtype == self.dtype else row.astype(self.dtype)
        return self._sum(row, self.dtype) if self.inside and self.axes else row

    def combined(self, carry: Any, row: Any) -> Any:
        """Return the carry after a step that contributes ``row``."""
        if isinstance(self.op, Max):
            return pt.maximum(carry, row)
        return carry * row if isinstance(self.op, Prod) else carry + row

    def result(self, carry: Any) -> Any:
        """Return the result of the reduction, from the last carry."""
        if isinstance(self.op, Max):
            return Max(axis=self.axes)(carry) if self.axes and not self.inside else carry
        dtype = self.node.outputs[0].type.dtype
        if self.axes and not self.inside:
            return self._sum(carry, dtype)
        return carry if carry.type.dtype == dtype else carry.astype(dtype)

    def _sum(self, value: Any, dtype: str) -> Any:
        return type(self.op)(axis=self.axes, dtype=dtype, acc_dtype=self.dtype)(value)


def _reductions(
    slot: Slot, accesses: Sequence[Access], context: PassContext
) -> Iterator[_Reduction]:
    """Yield the reductions of all steps of ``slot``, if all other readers read only last rows."""
    found: list[_Reduction] = []
    for access in accesses:
        if access.tail is not None:
            continue
        is_of_steps = access.is_plain and not access.n_initial
        reductions = list(_reduction(slot, access.node, context)) if is_of_steps else []
        if not reductions:
            return
        found += reductions
    yield from found


def _reduction(slot: Slot, node: Apply, context: PassContext) -> Iterator[_Reduction]:
    """Yield ``node`` if it reduces over time, or, if it negates, the maxima that alone read it."""
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Neg):
        readers = [reader for reader, _ in context.clients(node.outputs[0])]
        if all(isinstance(reader.op, Max) and _over_time(reader) for reader in readers):
            for reader in readers:
                yield _Reduction(slot, reader, _row_axes(reader), is_negated=True)
    elif isinstance(node.op, Sum | Prod | Max) and _over_time(node):
        yield _Reduction(slot, node, _row_axes(node), is_negated=False)


def _axes(node: Apply) -> tuple[int, ...]:
    axes = node.op.axis
    return tuple(range(node.inputs[0].type.ndim)) if axes is None else tuple(axes)


def _over_time(node: Apply) -> bool:
    return 0 in _axes(node)


def _row_axes(node: Apply) -> tuple[int, ...]:
    return tuple(axis - 1 for axis in _axes(node) if axis)


def _fits(
    one: _Reduction,
    view: ScanView,
    names: Mapping[Slot, str],
    lengths: Lengths,
    context: PassContext,
) -> bool:
    """Whether the loop can carry a reduction; if not, leave a remark why."""
    kind = np.dtype(one.node.inputs[0].type.dtype).kind
    reason = None
    if kind not in "fiu" or (one.is_negated and kind == "u"):
        reason = because(Why.TYPE_NOT_NUMERIC)
    elif isinstance(one.op, Max) and not lengths.runs():
        reason = because(Why.NO_STEPS, steps=str(lengths.steps))
    elif one.slot.kind is SlotKind.NIT_SOT and not one.inside:
        reason = because(Why.ROW_SHAPE_UNKNOWN)
    elif one.slot.kind is SlotKind.NIT_SOT and one.axes and isinstance(one.op, Prod):
        reason = because(Why.PRODUCT_COSTS)
    if reason is not None:
        name = type(one.op).__name__.lower()
        context.missed(view, Code.REDUCTION_KEPT, reason, names[one.slot], op=name)
    return reason is None


def _add_state(view: ScanView, one: _Reduction, rows: Any) -> Variable:
    """Add a state that carries a reduction to the loop; return a placeholder for its output."""
    row = one.of_row(one.slot.inner_outputs[0])
    carry = row.type()
    buffer: Any = one.slot.outer_input
    shape = [
        buffer.shape[axis + 1] if length is None else length
        for axis, length in enumerate(row.type.shape)
    ]
    start: Any = (
        pt.alloc(one.start, 1, *shape) if shape else pt.expand_dims(pt.constant(one.start), 0)
    )
    states = with_room(start, (rows, *shape), dtype=one.dtype)
    placeholder: Variable = states.type()
    view.slots.append(
        Slot(
            SlotKind.SIT_SOT,
            len(view.of_kind(SlotKind.SIT_SOT)),
            taps=(-1,),
            out_taps=(0,),
            inner_inputs=[carry],
            inner_outputs=[one.combined(carry, row)],
            outer_input=states,
            outer_output=placeholder,
        )
    )
    return placeholder
