"""What to call the slots of a Scan: PyTensor drops the names inside, so they come from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.scans.view import ScanView, Slot, SlotKind

type Clients = Callable[[Variable], Sequence[tuple[Any, int]]]

# How many wrappers (slices, expanded dimensions) are looked through for a name.
_LOOK = 4


def slot_name(slot: Slot, clients: Clients) -> str:
    """Return a name for ``slot``: its result's, else its source's, else ``kind[position]``.

    ``clients`` tells who reads an outer variable.
    """
    return _result_name(slot, clients) or _source_name(slot.outer_input, slot) or slot.label


def slot_names(view: ScanView, clients: Clients) -> list[str]:
    """Return a name for each slot of ``view``; a name that repeats gets its label behind it."""
    names = [slot_name(slot, clients) for slot in view.slots]
    return [
        f"{name} ({slot.label})" if names.count(name) > 1 and name != slot.label else name
        for name, slot in zip(names, view.slots, strict=True)
    ]


def _result_name(slot: Slot, clients: Clients) -> str | None:
    output = slot.outer_output
    if output is None:
        return None
    if output.name:
        return str(output.name)
    for reader, _ in clients(output):
        # ``scan`` hands its user the buffer without its start: that slice carries the name.
        if isinstance(reader.op, Subtensor) and reader.outputs[0].name:
            return str(reader.outputs[0].name)
    return None


def _source_name(variable: Variable, slot: Slot) -> str | None:
    """The name of what a slot is fed from, seen through slices and initial buffers."""
    if slot.kind is SlotKind.NIT_SOT:
        return None
    for _ in range(_LOOK):
        if variable.name:
            # ``scan`` calls the slice that it takes of a sequence ``x[0:]``.
            return str(variable.name).removesuffix("[0:]")
        node = variable.owner
        if node is None:
            return None
        if isinstance(node.op, IncSubtensor):
            variable = node.inputs[1]
        elif isinstance(node.op, Subtensor | DimShuffle):
            variable = node.inputs[0]
        else:
            return None
    return None
