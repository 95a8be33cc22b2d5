"""P008: arrays that are copied in each step, to write a part of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, ClassVar

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.slots import STATES, Slot, SlotKind, SlotView
from scanopt_cli.loop.memory import memory_of
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.compiled_loops import CompiledLoop
from scanopt_cli.rules.finding_costs import memory
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity

_FIX = Fix("remove-unused,guard-last-rows,normalize-reads,peel-first-step,trim-steps")
_SMALL = 64
"""To copy as many entries takes no longer than the step."""
_WRITES = (IncSubtensor, AdvancedIncSubtensor)


class CopiedStates(Rule):
    """Each step copies a whole array that it carries, to write a part of it.

    Where only the last value of such a state is read, PyTensor writes into the array itself, and a
    step takes as long whatever the length of the array. Where other steps are read, or a step reads
    the array of two steps ago, each step writes a copy: for n rows in n steps that is time and
    memory of n²::

        def step(i, filled):
            return pt.set_subtensor(filled[i], f(filled[i - 1]))

        filled = scan(step, sequences=[pt.arange(n)], outputs_info=[pt.zeros(n)])
        filled[-1]  # in place
        filled[:, 0], pt.grad(filled[-1].sum(), x)  # all n arrays are kept

    Carry what the next step reads (``f`` of the row before), and let the loop's trace be the rows:
    ``outputs_info=[x0]``. Or read the last value alone.

    That the step copies is looked up in what PyTensor makes of the graph for Numba, in place
    rewrites and all; the fix is given where nothing is copied after it. Arrays of at most 64
    entries are no finding.
    """

    code: ClassVar[str] = "P008"
    name: ClassVar[str] = "copied-states"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix | None] = _FIX

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop that copies a state to write into it."""
        writing = [loop for loop in context.scans if _written_states(loop)]
        before = context.compiled() if writing else None
        copying = [loop for loop in writing if _copies((before or {}).get(loop.title, ()))]
        if not copying:
            return
        after = context.compiled(_FIX.passes)
        for loop in copying:
            slots = _written_states(loop)
            names = " or ".join(f"`{loop.names[slot]}`" for slot in slots)
            text = f"each step copies {names} to write a part of it"
            is_mended = after is not None and not _copies(after.get(loop.title, ()))
            fix = _FIX if is_mended else None
            yield self.at(context, loop, text, *slots, cost=memory(loop, slots), fix=fix)


def _written_states(loop: NamedLoop) -> list[Slot]:
    """Return the states that are arrays, not small ones, of which a step writes a part."""
    return [
        slot
        for slot in loop.view.of_kind(*STATES)
        if slot.kind is not SlotKind.MIT_MOT
        and not _is_small(loop.view, slot)
        and _written(slot.inner_outputs[0], slot.inner_inputs)
    ]


def _written(value: Variable, states: Collection[Variable]) -> bool:
    """Whether a value is a state of which parts are written."""
    node = value.owner
    if node is None or not isinstance(node.op, _WRITES):
        return False
    return node.inputs[0] in states or _written(node.inputs[0], states)


def _is_small(view: SlotView, slot: Slot) -> bool:
    outer: Any = slot.outer_input
    first = view.batch_ndim + int(slot.kind is not SlotKind.UNTRACED)
    count = 1
    for axis in range(first, getattr(outer.type, "ndim", 0)):
        length = Lengths().length_of(outer, axis)
        count *= length.constant if length.is_constant else _SMALL + 1
    return count <= _SMALL


def _copies(loops: Iterable[CompiledLoop]) -> bool:
    """Whether a step of a compiled loop writes into a copy of a state."""
    return any(
        isinstance(node.op, _WRITES)
        and not node.op.destroy_map
        and memory_of(node.inputs[0], _is_copy) in states
        for loop in loops
        for states in [{v for slot in loop.view.of_kind(*STATES) for v in slot.inner_inputs}]
        for node in loop.view.op.fgraph.toposort()
    )


def _is_copy(node: Apply) -> bool:
    return isinstance(node.op, _WRITES) and not node.op.destroy_map
