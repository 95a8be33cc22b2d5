"""The recursions of a loop that read no data: what they compute depends on nothing but themselves.

In a Kalman filter, the next covariance is computed of the covariance and of matrices that no step
changes; the next mean is computed of the data as well. So the covariances can be known without the
data, and are those of any other series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView


def closed_recursions(view: LoopView) -> list[list[Slot]]:
    """Return the smallest sets of states that depend on themselves and on constants alone.

    The states of a set depend on each other, in this step or in a later one, and on no state
    outside of it, nor on the number of the step, so on no row of a sequence. They, and all that
    their updates are computed of, are arrays or numbers: no update draws random numbers.
    """
    states = view.of_kind(SlotKind.STATE)
    read = _read_by_updates(view, states)
    while True:
        wider = [_joined(mask, read) for mask in read]
        if wider == read:
            break
        read = wider
    sets: dict[int, list[Slot]] = {}
    for place, (slot, mask) in enumerate(zip(states, read, strict=True)):
        if mask >> place & 1 and not mask >> len(states):
            sets.setdefault(mask, []).append(slot)
    return [
        found
        for mask, found in sets.items()
        if mask.bit_count() == len(found)
        and any(slot.inner_outputs[0] is not slot.inner_inputs[0] for slot in found)
    ]


def _read_by_updates(view: LoopView, states: list[Slot]) -> list[int]:
    """Return for each state which states its update reads, as bits; a last bit is for data."""
    data = 1 << len(states)
    masks: dict[Variable, int] = {view.index: data}
    for place, slot in enumerate(states):
        masks[slot.inner_inputs[0]] = 1 << place
    for node in view.op.fgraph.toposort():
        mask = 0 if all(map(_is_plain, (*node.inputs, *node.outputs))) else data
        for variable in node.inputs:
            mask |= masks.get(variable, 0)
        masks |= dict.fromkeys(node.outputs, mask)
    return [
        masks.get(slot.inner_outputs[0], 0) | (0 if _is_plain(slot.inner_inputs[0]) else data)
        for slot in states
    ]


def _joined(mask: int, read: list[int]) -> int:
    """Return a mask with what those states read that it has."""
    joined = mask
    for place, other in enumerate(read):
        if mask >> place & 1:
            joined |= other
    return joined


def _is_plain(variable: Variable) -> bool:
    return isinstance(variable.type, DenseTensorType | ScalarType)


@dataclass(slots=True, eq=False)
class ClosedPart:
    """What a step computes of the states of a closed recursion and of constants alone.

    Attributes
    ----------
    nodes
        The nodes that compute it, in topological order; some are of constants alone.
    computed
        The variables that depend on the states.
    read
        Those of them, and of the states before the step, that the rest of the step reads, or that
        are traced. What only rearranges axes is left to the rest.
    """

    nodes: list[Apply]
    computed: list[Variable]
    read: list[Variable]

    @classmethod
    def of(
        cls,
        view: LoopView,
        states: Sequence[Slot],
        constants: Sequence[Slot],
        only: Callable[[Variable], bool] | None = None,
    ) -> ClosedPart:
        """Return the part of a view that is unfrozen, as the rest of the step needs it.

        It is computed of ``constants``. If ``only`` is given, which is asked of variables in
        topological order, the part has no other variable that depends on the states.
        """
        moving = {slot.inner_inputs[0] for slot in states}
        same = {slot.inner_inputs[0] for slot in constants}
        results = [v for slot in view.outputs() if slot not in states for v in slot.inner_outputs]
        results += [] if view.condition is None else [view.condition]
        nodes: list[Apply] = []
        computed: list[Variable] = []
        read = dict.fromkeys(results)
        for node in io_toposort([], results):
            is_known = all(_is_plain(v) for v in node.outputs) and all(
                isinstance(v, Constant) or v in same or v in moving for v in node.inputs
            )
            if is_known and moving.isdisjoint(node.inputs):
                same.update(node.outputs)
                nodes.append(node)
            elif is_known and (only is None or all(map(only, node.outputs))):
                moving.update(node.outputs)
                computed += node.outputs
                nodes.append(node)
            else:
                read |= dict.fromkeys(node.inputs)
        return cls(nodes, computed, list(dict.fromkeys(_unmoved(v) for v in read if v in moving)))


def _unmoved(variable: Variable) -> Variable:
    """Return a variable before its axes were rearranged."""
    while isinstance(variable.owner_op, DimShuffle):
        variable = variable.owner.inputs[0]
    return variable
