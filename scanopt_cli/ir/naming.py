"""Names of Scans and of their slots, for reports.

A Scan is named after its Op, with a number where a graph has several of that name. Slots are named
after outer variables, since PyTensor drops the names of inner ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.ir.inner_graphs import inner_graphs, op_name
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView

type Clients = Callable[[Variable], Sequence[tuple[Any, int]]]

_INDEX = re.compile(r"\[(t([+-]\d+)?|\d+:)\]$")
_ENTRY = re.compile(r"(.+)\[(\d{1,4}(?:, \d{1,4})*)\]")
# How many slices and expanded dimensions the search for a name looks through.
_LOOK = 4


def titles(outputs: Sequence[Variable]) -> dict[Apply, str]:
    """Return the title of each node that holds a graph: its Op's name, numbered if it repeats.

    ``outputs`` are those of one graph; a body has titles of its own. All copies of a graph have the
    same titles.
    """
    names = {node: op_name(node.op) for node in toposort(outputs) if inner_graphs(node.op)}
    return dict(zip(names, _numbered(list(names.values())), strict=True))


def slot_name(
    slot: Slot, clients: Clients, around: Mapping[Variable, str] = MappingProxyType({})
) -> str:
    """Return a name for ``slot``: what the step calls it, else its result's or its source's name.

    If there is none, it is ``kind[position]``.

    ``clients`` returns the readers of an outer variable; ``around`` holds the names that the
    enclosing loop gives to its variables.
    """
    return slot.argument or _result_name(slot, clients) or _source_name(slot, around) or slot.label


def slot_names(
    view: SlotView, clients: Clients, around: Mapping[Variable, str] = MappingProxyType({})
) -> list[str]:
    """Return a name for each slot of ``view``; names that repeat are numbered: ``h#1``, ``h#2``."""
    return _numbered([slot_name(slot, clients, around) for slot in view.slots])


def entry_name(array: str, place: Sequence[int]) -> str:
    """Return what a slot is called that is an entry of an array: ``P[0, 1]``."""
    return f"{array}[{', '.join(map(str, place))}]" if place else array


def entry_of(slot: Slot) -> tuple[str, tuple[int, ...]] | None:
    """Return the name of the array that a slot is an entry of, and the place of the entry.

    Only what `entry_name` called it tells: no argument of a function in Python has brackets.
    """
    found = _ENTRY.fullmatch(slot.argument or "")
    return None if found is None else (found[1], tuple(map(int, found[2].split(", "))))


def _numbered(names: Sequence[str]) -> list[str]:
    """Return ``names`` with ``#1``, ``#2`` and so on behind those that repeat."""
    repeats = Counter(names)
    numbers = {name: count(1) for name in repeats}

    def unique(name: str) -> str:
        if repeats[name] == 1:
            return name
        candidates = (f"{name}#{number}" for number in numbers[name])
        return next(candidate for candidate in candidates if candidate not in repeats)

    return [unique(name) for name in names]


def _result_name(slot: Slot, clients: Clients) -> str | None:
    for output in slot.outer_outputs:
        if output.name:
            return str(output.name)
        for reader, _ in clients(output):
            # ``scan`` hands its user the buffer without its start: that slice carries the name.
            if isinstance(reader.op, Subtensor) and reader.outputs[0].name:
                return str(reader.outputs[0].name)
    return None


def _source_name(slot: Slot, around: Mapping[Variable, str]) -> str | None:
    """The name of the variable that feeds a slot, looked up through slices and initial buffers."""
    if slot.kind in (SlotKind.NIT_SOT, SlotKind.TRACED, SlotKind.INDEX):
        return None
    variable = slot.outer_input
    for _ in range(_LOOK):
        if variable in around:
            return _without_index(around[variable])
        if variable.name:
            return _without_index(str(variable.name))
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


def _without_index(name: str) -> str:
    """``x`` for ``x[t-1]``, and for ``x[0:]``, as ``scan`` calls its slice of a sequence."""
    return _INDEX.sub("", name) or name
