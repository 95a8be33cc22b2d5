"""Make constants of the states that no step changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pytensor.graph.basic import Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import alloc, as_tensor_variable
from pytensor.tensor.type import TensorType

from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class ConstantStates(TracedLoopPass):
    """Make a constant of each state of a TracedLoop that no step changes.

    Legal cases:

    1. A state whose next value is the state itself. A step reads its initial value; its last value
       is that; and its trace is that value again and again.

    Preconditions: the state is an array or a number.

    Out of scope: states that are constant from the second step on, and Scans (see
    ``hoist-states``).
    """

    name: ClassVar[str] = "constant-states"

    def rewrite(self, view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop without these states."""
        constant = [slot for slot in view.of_kind(SlotKind.STATE) if _is_constant(slot)]
        if not constant:
            return None
        names = context.names(view)
        for slot in constant:
            context.passed(view, Code.STATE_CONSTANT, names[slot])
        view.unfreeze()
        view.slots = [slot for slot in view.slots if slot not in constant]
        for slot in constant:
            view.add_input(SlotKind.CONSTANT, slot.inner_inputs[0], slot.outer_input)
        replacements = view.rebuild()
        assert view.n_done is not None
        n_done: Any = replacements[view.n_done] if view.is_while else view.n_steps
        for slot in constant:
            value: Any = slot.outer_input
            assert slot.last is not None
            replacements[slot.last] = value
            row: Any = as_tensor_variable(value)
            replacements[slot.output] = as_tensor_variable(alloc(row, n_done + 1, *row.shape))
        return replacements


def _is_constant(slot: Slot) -> bool:
    (old,), (new,) = slot.inner_inputs, slot.inner_outputs
    return old is new and isinstance(old.type, TensorType | ScalarType)
