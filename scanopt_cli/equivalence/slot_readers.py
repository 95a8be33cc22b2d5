"""Distinguishes the slots of a Scan Op, whose outer inputs are unknown, by readers in the body."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytensor.graph.basic import Apply, Constant

from scanopt_cli.equivalence.operands import commutes
from scanopt_cli.ir.scan_view import inner_slots, loop_op

if TYPE_CHECKING:
    from scanopt_cli.equivalence.loop_forms import StepDigests
    from scanopt_cli.equivalence.sameness import Sameness


class SlotReaders:
    """Distinguishes the slots of a loop by what a step computes for them and by their readers.

    Readers that compute the same count as one reader, however often the body repeats them.
    """

    def __init__(self, step: StepDigests) -> None:
        self._step = step
        key = step.sameness.key
        # Slots are identified by place, so only repetitions of one node have equal digests.
        digests = step.digests([key("place", place) for place in range(len(step.slots))])
        self._once = digests.of
        distinct: dict[tuple[bytes, ...], Apply] = {}
        for node in step.nodes:
            # Sorted, since two copies of a loop may list their outputs in different orders.
            distinct.setdefault(tuple(sorted(map(self._once, node.outputs))), node)
        self._nodes = list(distinct.values())

    def of_slots(self, colours: Sequence[bytes]) -> list[bytes]:
        """Return a key for each slot: of its colour, its updates and its readers."""
        step, once = self._step, self._once
        key, digests = step.sameness.key, step.digests(colours)
        readers: dict[bytes, set[bytes]] = defaultdict(set)
        for slot, colour in zip(step.slots, colours, strict=True):
            for tap, variable in enumerate(slot.inner_outputs):
                readers[once(variable)].add(key("result", colour, tap))
        if step.stop is not None:
            readers[once(step.stop)].add(key("condition"))
        for node in reversed(self._nodes):
            read = [(digests.of(v), sorted(readers[once(v)])) for v in node.outputs]
            whole = key("readers", sorted(read))
            for port, variable in zip(_ports(step.sameness, node), node.inputs, strict=True):
                if not isinstance(variable, Constant):
                    readers[once(variable)].add(key("reader", port, whole))
        return [
            key(
                "slot",
                colour,
                [digests.of(variable) for variable in slot.inner_outputs],
                [sorted(readers[once(variable)]) for variable in slot.inner_inputs],
            )
            for slot, colour in zip(step.slots, colours, strict=True)
        ]


def _ports(sameness: Sameness, node: Apply) -> Sequence[object]:
    """Return a mark for each input of ``node``, equal for inputs that may be swapped."""
    loop = loop_op(node)
    if loop is not None:
        ports = zip(inner_slots(loop), sameness.form(loop).ports, strict=True)
        return ("steps", *(port for slot, port in ports if slot.has_input))
    if commutes(node):
        return (0, 0, *range(2, len(node.inputs)))
    return range(len(node.inputs))
