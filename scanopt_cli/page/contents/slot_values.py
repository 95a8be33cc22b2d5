"""The values of slots, as a short text at each port of the picture: of the loops in no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scanopt_cli.page.picture import Box, BoxKind, Level, Picture, Port
from scanopt_cli.reports.sparklines import sparkline
from scanopt_cli.tracing.result import LoopTrace, SlotTrace, Trace
from scanopt_cli.tracing.values import is_numeric, range_text, value_text

_WIDTH = 24


def with_values(picture: Picture, trace: Trace) -> Picture:
    """Return the picture with the values of slots in its first stage.

    Of a level that several boxes share, only one of them was traced for all: it gets none.
    """
    if not picture.stages:
        return picture
    filling = _Filling(dict(picture.levels))
    for loop in trace.loops:
        filling.fill(picture.stages[0].level, loop.path, loop)
    return replace(picture, levels=filling.levels)


@dataclass(slots=True)
class _Filling:
    levels: dict[str, Level]
    times: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        self.times = Counter(box.body for level in self.levels.values() for box in level.boxes)

    def fill(self, name: str, path: Sequence[str], loop: LoopTrace) -> None:
        """Write the values of a loop into its box, which ``path`` leads to from a level."""
        for inner in path:
            around = [box for box in self.levels[name].boxes if box.label == inner and box.body]
            if len(around) != 1 or self.times[around[0].body] > 1:
                return
            name = around[0].body
        level = self.levels[name]
        boxes = tuple(_filled(box, loop) for box in level.boxes)
        self.levels[name] = replace(level, boxes=boxes)


def _filled(box: Box, loop: LoopTrace) -> Box:
    if box.kind is not BoxKind.LOOP or box.label != loop.name:
        return box
    by_name: Mapping[str, list[SlotTrace]] = _by_name(loop.slots, box.ports)
    return replace(
        box,
        ports=tuple(
            replace(port, values="; ".join(map(values_text, by_name[port.name])))
            if port.name in by_name
            else port
            for port in box.ports
        ),
    )


def _by_name(slots: Iterable[SlotTrace], ports: Iterable[Port]) -> dict[str, list[SlotTrace]]:
    """Return the series of each port: of a mit_mot one for each tap, ``h[t+1]``."""
    names = {port.name for port in ports}
    found: dict[str, list[SlotTrace]] = {}
    for slot in slots:
        name = slot.name if slot.name in names else slot.name.rpartition("[")[0]
        if name in names:
            found.setdefault(name, []).append(slot)
    return found


def values_text(slot: SlotTrace) -> str:
    """Return the first value, the last, the range, how many NaN, and how they run."""
    rows = slot.rows
    if slot.is_constant:
        return value_text(rows[0])
    if not rows:
        return "no step was run"
    numbers = [row.ravel() for row in rows if is_numeric(row)]
    span = range_text(np.concatenate(numbers)) if numbers else ""
    texts = [f"first {value_text(rows[0])}", f"last {value_text(rows[-1])}"]
    texts += [f"all {span}"] if span else []
    return f"{', '.join(texts)} {sparkline(rows, _WIDTH)}".rstrip()
