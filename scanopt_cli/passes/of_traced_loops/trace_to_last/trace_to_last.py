"""Read the last row of a trace from the last value of the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.accesses.accesses import Access, accesses
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import along
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.ir.step_check import is_checked, with_step_check
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.loop.shapes import traced_shapes
from scanopt_cli.passes.of_traced_loops.trace_to_last.windows import (
    Window,
    add_ring,
    read_from_ring,
    windows_of,
)
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class TraceToLast(TracedLoopPass):
    """Read last rows from states that a loop carries, which need no trace.

    A TracedLoop keeps only the traces that are read, so a trace goes once its last reader is gone.

    Legal cases:

    1. ``trace[-1]``, ``trace[-1:]`` and ``trace[n]``, where the loop runs ``n`` steps, become the
       last value of the state, whether or not there are other readers.
    2. The same of the steps alone, ``trace[1:][-1]``. If the loop may run no step, a check raises
       the IndexError then, and a slice takes the row only if there is a step.
    3. A traced value that is read in no other way becomes a state, whose initial value nobody
       reads. It is zeros of the shape of the value. A check is written as for case 2.
    4. The same of a trace whose rows are moved behind batch dimensions, as those of a batched loop
       are. A check that every entry of the batch runs as many steps is dropped: the last value is
       that of the entry.
    5. A trace that is read in no other way than from its end, ``trace[-k:]``, is a ring of its last
       ``k`` rows, which the loop carries, unless it provably runs at most four times as many steps.

    Preconditions: the trace is an array. In a loop with a condition, ``n`` is not known before, so
    only an index of -1 is the last.

    Without ``check``, as for JAX, which cannot raise errors, the last row of a loop of no steps is
    the initial value. So it is where the row is for one branch of an IfElse alone: Numba computes
    both branches, and the check would raise in the one that is not taken.

    Out of scope: several last rows of a batched loop.
    """

    check: bool = True
    """whether to check that a loop ran a step whose row is read; JAX cannot raise errors"""

    name: ClassVar[str] = "trace-to-last"

    def adapted(self, target: CompilationTarget) -> Self:
        """Write no check that cannot raise."""
        return replace(self, check=self.check and target.raises)

    def rewrite(self, view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for those that read the last row of a trace."""
        lengths = Lengths(view.n_steps)
        names = context.names(view)
        lasts: dict[Slot, list[Access]] = {}
        carried: list[Slot] = []
        windows: list[Window] = []
        for slot in view.outputs():
            if not isinstance(slot.output.type, TensorType):
                continue
            readers = accesses(view, slot, context.clients)
            found = [access for access in readers if _reads_last(access, slot, view, lengths)]
            others = [access for access in readers if access not in found]
            is_carried = slot.kind is SlotKind.TRACED and found and not others
            if found and slot.last is not None:
                context.passed(view, Code.LAST_READ, names[slot], count=len(found))
                lasts[slot] = found
            elif is_carried:
                context.passed(view, Code.TRACED_CARRIED, names[slot])
                carried.append(slot)
                lasts[slot] = found
            else:
                others = readers
            if others and not any(access.axis for access in others):
                for window in windows_of(slot, others, lengths) or ():
                    windows.append(window)
                    context.passed(
                        view,
                        Code.BUFFER_SHORTENED,
                        names[slot],
                        rows=window.most,
                        reads=window.reads,
                    )
        made = _with_states(view, carried, windows) if carried or windows else {}
        replacements = dict(made)
        for slot, readers in lasts.items():
            assert slot.last is not None
            last = (
                replacements.pop(slot.last) if slot in carried else made.get(slot.last, slot.last)
            )
            replacements |= self._rows(last, readers, view, context)
        for window in windows:
            del replacements[window.last]
            n_done = view.n_steps if not view.is_while else made[_count(view)]
            replacements |= read_from_ring(window, made, n_done)
        return replacements

    def _rows(
        self, last: Any, readers: Sequence[Access], view: LoopView, context: PassContext
    ) -> dict[Variable, Variable]:
        """Return what each reader of a last row reads, given the last value."""
        runs = Lengths(view.n_steps).runs()
        found = {}
        for access in readers:
            row = _row(last, access)
            assert access.index is not None
            if not runs and not access.n_initial:
                if access.index.is_slice:
                    row = row[along(access.axis, slice(None, view.n_steps))]
                elif self.check and not (
                    is_checked(access.result, context.clients)
                    or context.is_conditional(access.node)
                ):
                    row = with_step_check(row, view.n_steps)
            found[access.result] = row
        return found


def _reads_last(access: Access, slot: Slot, view: LoopView, lengths: Lengths) -> bool:
    if access.index is None or not access.is_plain:
        return False
    if access.n_initial and slot.kind is SlotKind.TRACED:
        return False  # of no steps, the last row is one that was joined to the trace
    index = access.index.value
    if access.index.reads_last or access.index.row == -1:
        return True
    if view.is_while or not isinstance(index, Variable) or index.type.ndim:
        return False
    last = lengths.steps + (access.n_initial - 1)
    return lengths.value_of(index) == last


def _row(last: Any, access: Access) -> Any:
    """Return what a reader reads, given the last value."""
    index = access.index
    assert index is not None
    last = pt.as_tensor_variable(last)
    found: Any = last[along(access.axis, *index.rest)] if index.rest else last
    return pt.expand_dims(found, access.axis) if index.is_slice else found


def _with_states(
    view: LoopView, carried: Sequence[Slot], windows: Sequence[Window]
) -> dict[Variable, Variable]:
    """Rebuild a loop so that it carries traced values, and windows of traces."""
    _, *outer = view.node.inputs
    shapes: Any = traced_shapes(view.op, outer, n_steps=view.n_steps)

    def row_shape(slot: Slot) -> Any:
        if slot.kind is SlotKind.TRACED:
            return shapes[slot.position]
        return pt.as_tensor_variable(slot.outer_input).shape

    wanted = {slot: row_shape(slot) for slot in (*carried, *(w.slot for w in windows))}
    view.unfreeze()
    for window in windows:
        add_ring(view, window, wanted[window.slot])
    for slot in carried:
        dtype = slot.inner_outputs[0].type.dtype
        _carry(slot, pt.zeros(wanted[slot], dtype=dtype))
    return view.rebuild()


def _count(view: LoopView) -> Variable:
    """Return the output that says how many steps were run."""
    assert view.n_done is not None
    return view.n_done


def _carry(slot: Slot, start: Variable) -> None:
    """Make a state of a traced value, whose last value is read and whose trace is not."""
    (value,) = slot.inner_outputs
    slot.kind, slot.taps = SlotKind.STATE, (-1,)
    slot.inner_inputs, slot.outer_input = [value.type()], start
    slot.last, slot.outer_output = value.type(), None
