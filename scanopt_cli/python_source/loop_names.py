"""What a step calls its rows, and what the results of a loop are called: ``h_tm1``, ``hs``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.ir.inner_graphs import op_name
from scanopt_cli.ir.naming import slot_names
from scanopt_cli.ir.scan_view import is_loop, loop_op, view_of
from scanopt_cli.ir.slots import STATES, HasSlots, Slot, SlotKind
from scanopt_cli.python_source.names import identifier
from scanopt_cli.python_source.scan_calls import UNNAMED

_OF_ROW = re.compile(r"_t([mp]\d+)?$")
_OF_START = re.compile(r"_?(0|init|initial|start)$")


def parameters(node: Apply, around: Mapping[Variable, str]) -> list[str | None]:
    """Return what the inputs of the graph that ``node`` applies are called."""
    if not is_loop(node):
        return [around.get(v) or v.name for v in node.inputs]
    names = [
        name
        for slot, base in _bases(node, around)
        if slot.kind is not SlotKind.INDEX
        for name in _of_rows(slot, base)
    ]
    return ["index", *names] if isinstance(node.op, HasSlots) else names


def results(node: Apply, around: Mapping[Variable, str]) -> dict[Variable, str]:
    """Return what the outputs of a loop are called that have no names."""
    op = loop_op(node)
    own = op_name(op)
    title = (None if own in (UNNAMED, type(op).__name__) else identifier(own)) or "loop"
    found: dict[Variable, str] = {}
    for slot, base in _bases(node, around):
        plain = None if base is None else _OF_START.sub("", _OF_ROW.sub("", base))
        one = plain if plain and slot.kind in STATES else None
        many = f"{one}s" if one else f"{title}_rows"
        if slot.kind is SlotKind.UNTRACED:
            many = f"next_{one}" if one else many
        if slot.outer_output is not None and not slot.outer_output.name:
            found[slot.outer_output] = many
        if slot.last is not None and not slot.last.name:
            found[slot.last] = f"last_{one}" if one else f"{title}_last"
    return found


def of_row(name: str | None) -> str | None:
    """Return what a row of a sequence is called in a step."""
    return f"{_OF_ROW.sub('', name)}_t" if name else None


def _bases(node: Apply, around: Mapping[Variable, str]) -> Iterator[tuple[Slot, str | None]]:
    view = view_of(node)
    titles = slot_names(view, lambda _: (), around)
    for slot, title in zip(view.slots, titles, strict=True):
        yield slot, None if title == slot.label else identifier(title.partition("#")[0])


def _of_rows(slot: Slot, base: str | None) -> Iterator[str | None]:
    is_argument = slot.argument is not None and len(slot.inner_inputs) == 1
    plain = None if base is None else _OF_ROW.sub("", base)
    for place, _ in enumerate(slot.inner_inputs):
        if plain is None or is_argument or slot.kind in (SlotKind.CONSTANT, SlotKind.NON_SEQ):
            yield base
        elif slot.kind is SlotKind.SEQ:
            yield f"{plain}_t"
        else:
            tap = slot.taps[place]
            yield f"{plain}_tm{-tap}" if tap < 0 else f"{plain}_tp{tap}"
