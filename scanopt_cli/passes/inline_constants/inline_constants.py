"""Move constant inputs of a loop into its body, where they can be folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import row_reads
from scanopt_cli.ir.declared_lengths import declaring_as
from scanopt_cli.ir.indexing import is_full_slice
from scanopt_cli.ir.interning import has_negative_zero
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.inline_constants.small_folding import fold
from scanopt_cli.passes.inline_constants.uniform_rows import LARGEST, UniformRows, may_repeat_entry
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Reason, Why, because


@dataclass(frozen=True)
class InlineConstants(AnyLoopPass):
    """Inline constant non-sequences and uniform sequences into the body, and fold there.

    Legal cases:

    1. A non-sequence that is a Constant moves into the body; likewise a constant of a TracedLoop.
    2. A sequence that is a Constant with equal rows, at least one, moves into the body as that row.
    3. A sequence of which all rows are filled with one value, ``alloc(v, T, ...)``,
       ``broadcast_to(v, ...)``, ``full``, ``repeat`` of a single row, ``stack`` of one value,
       becomes a single row. The row moves into the body if it is a Constant; else it becomes a
       non-sequence.
    4. Cases 2 and 3 of a TracedLoop: the row of a constant at the index of the step, or a constant
       number of rows behind it, along any axis.
    5. A sequence that is made of arrays of cases 2 and 3 by slices, with any constant step and
       reversals included; by moved, inserted and dropped axes; by elementwise operations, among
       arrays of which each has equal rows or is broadcast along the rows, and ``fill``, of which
       the first operand may have any rows; by checks (``Assert``, ``specify_shape``).
       The same operations make its row.
    6. A Join of arrays of cases 2 to 5: along its rows, if the rows of all of its parts are the
       same; along another axis, of the joined rows.
    7. A buffer into all rows of which the same row was written; of a vector, the one entry of
       another one (``x[:] = y``), of which a remark says if its length is not known.

    If the pass moved anything into the body, it runs PyTensor's own constant folding there.

    Preconditions: rows are equal bit by bit (a NaN equals itself, ``0.0`` and ``-0.0`` differ),
    those of a Join by the keys of their computations. The sequence provably has a row for each
    step, and the lengths of arrays that are joined or combined are provably equal, so that no error
    is lost; an elementwise operation that may raise (a division of integers) is taken if there
    provably is a step. A constant that moves into the body has at most 4096 elements and no
    ``-0.0`` (PyTensor treats it as ``0.0`` in a body), and its type is the type that the body reads
    or narrower; the same type, if a step returns it.

    Out of scope: batched loops (``Blockwise{Scan}``), sequences that are invariant only in part,
    arrays whose rows are equal for their values alone (``x * 0``), and moving computation out of
    the loop.
    """

    name: ClassVar[str] = "inline-constants"
    repeats: ClassVar[bool] = True

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop without constant and uniform inputs."""
        if isinstance(view, LoopView) and (made := _with_uniform_rows(view, context)):
            return made
        names = context.names(view)
        found = _invariant_values(view, names, context)
        if not found:
            return None
        inlined = {
            slot: value
            for slot, value in found.items()
            if isinstance(value, Constant) and _misfit(view, value, slot.inner_inputs[0]) is None
        }
        view.unfreeze({slot.inner_inputs[0]: value for slot, value in inlined.items()})
        for slot, value in found.items():
            name, kind = names[slot], slot.kind
            if slot in inlined:
                context.passed(view, Code.CONSTANT_INLINED, name, kind=kind)
                continue
            context.passed(view, Code.SEQUENCE_UNIFORM, name, kind=kind, into=SlotKind.NON_SEQ)
            slot.kind = SlotKind.NON_SEQ
            slot.outer_input = declaring_as(value, slot.inner_inputs[0])
        view.slots = [slot for slot in view.slots if slot not in inlined]
        if inlined:
            fold(view)
        return view.rebuild()


def _invariant_values(
    view: SlotView, names: Mapping[Slot, str], context: PassContext
) -> dict[Slot, Variable]:
    """Return Constants that can move into the body, and what sequences are at every step."""
    found: dict[Slot, Variable] = {}
    rows = _EqualRows.of(view, context)
    for slot in view.of_kind(SlotKind.SEQ, SlotKind.NON_SEQ, SlotKind.CONSTANT):
        outer = slot.outer_input
        value: Variable | None = outer if isinstance(outer, Constant) else None
        reason: Reason | None = None
        if view.batch_ndim:
            reason = because(Why.LOOP_BATCHED) if value is not None else None
        elif slot.kind is SlotKind.SEQ:
            value, reason = rows.read(slot)
        elif isinstance(value, Constant):
            reason = _misfit(view, value, slot.inner_inputs[0])
        if reason is not None:
            context.missed(view, Code.INPUT_KEPT, reason, names[slot], kind=slot.kind)
        elif value is not None:
            found[slot] = value
    return found


def _with_uniform_rows(view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
    """Return replacements for the outputs of a TracedLoop whose steps read uniform rows."""
    names, rows = context.names(view), _EqualRows.of(view, context)
    values: dict[tuple[Slot, int, int], Variable] = {}
    for read in row_reads(view):
        value, reason = rows.read(read.slot, read.axis, read.ahead)
        if reason is not None:
            context.missed(view, Code.INPUT_KEPT, reason, names[read.slot], kind=read.slot.kind)
        elif value is not None:
            values[read.rows] = value
    if not values:
        return None
    view.unfreeze()
    replaced: dict[Variable, Variable] = {}
    added: dict[Variable, Any] = {}
    for read in row_reads(view):
        result = read.node.outputs[0]
        if read.rows not in values or result in replaced:
            continue
        value, name, kind = values[read.rows], names[read.slot], read.slot.kind
        if isinstance(value, Constant) and _misfit(view, value, result) is None:
            context.passed(view, Code.CONSTANT_INLINED, name, kind=kind)
            row: Any = value
        else:
            context.passed(view, Code.SEQUENCE_UNIFORM, name, kind=kind, into="row")
            if value not in added:
                added[value] = view.add_input(SlotKind.CONSTANT, read.row_type(), value)
            row = added[value]
        if not all(map(is_full_slice, read.rest)):
            row = row[read.rest]
        replaced[result] = result.type.filter_variable(row, allow_convert=True)
    view.set_inner_outputs(graph_replace(view.inner_outputs(), replaced, strict=False))
    read_inside = set(ancestors(view.inner_outputs()))
    view.slots = [
        slot
        for slot in view.slots
        if slot.kind is not SlotKind.CONSTANT or not read_inside.isdisjoint(slot.inner_inputs)
    ]
    fold(view)
    return view.rebuild()


@dataclass(frozen=True, slots=True)
class _EqualRows:
    """What steps read of arrays with equal rows."""

    lengths: Lengths
    rows: UniformRows

    @classmethod
    def of(cls, view: SlotView, context: PassContext) -> _EqualRows:
        lengths = Lengths(None if view.batch_ndim else view.n_steps)
        return cls(lengths, UniformRows(lengths, context.same))

    def read(
        self, slot: Slot, axis: int = 0, ahead: int = 0
    ) -> tuple[Variable | None, Reason | None]:
        """Return the row of ``slot`` at each step, ``None`` if unknown, and why it has to stay."""
        value = self.rows.of(slot.outer_input, axis)
        steps = self.lengths.steps
        n_rows = self.lengths.length_of(slot.outer_input, axis)
        reason = None
        if value is not None and has_negative_zero(value):
            reason = because(Why.NEGATIVE_ZERO)
        elif value is not None and not self.lengths.provably_le(steps + ahead, n_rows):
            reason = because(Why.SEQUENCE_LENGTH)
        elif value is None and not axis and may_repeat_entry(slot.outer_input):
            reason = because(Why.LENGTH_UNKNOWN)
        return value, reason


def _misfit(view: SlotView, value: Constant, inner: Variable) -> Reason | None:
    """Return why a constant cannot stand in the body in place of ``inner``, ``None`` if it can."""
    if has_negative_zero(value):
        return because(Why.NEGATIVE_ZERO)
    if getattr(value.data, "size", 1) > LARGEST:
        return because(Why.CONSTANT_LARGE, elements=LARGEST)
    if inner in view.inner_outputs() and value.type != inner.type:
        return because(Why.CONSTANT_RETURNED)
    if not inner.type.is_super(value.type) and value.type.ndim == inner.type.ndim:
        return because(Why.TYPE_DIFFERS, type=str(value.type), read=str(inner.type))
    return None
