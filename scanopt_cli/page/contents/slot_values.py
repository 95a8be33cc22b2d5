"""The values of slots, as a short text at each port of the picture.

A loop inside of another is run in the first step of that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from scanopt_cli.analysis.named_loops import named_loops
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.page.picture import Box, BoxKind, Level, Picture, Port
from scanopt_cli.reports.sparklines import sparkline
from scanopt_cli.text import enumerated
from scanopt_cli.tracing.result import LoopTrace, SlotTrace, Trace
from scanopt_cli.tracing.tracing import trace
from scanopt_cli.tracing.values import is_numeric, range_text, value_text

_WIDTH = 24
MOST_INNER = 8
"""How many loops inside of others are traced, each of which takes a process."""


def traced(
    graph: Graph, *, seed: int, timeout: float, progress: Callable[[str], None] | None = None
) -> Trace:
    """Return what the slots of loops hold, those inside of others in the first step of these.

    A loop inside that is not run in that step is left out.

    Raises
    ------
    ScanoptError
        If the graph has no loop, or cannot be evaluated.
    """
    found = trace(graph, seed=seed, timeout=timeout, progress=progress)
    inner = [loop for loop in named_loops(graph.fgraph, each_place=True) if loop.parent is not None]
    more: list[LoopTrace] = []
    for loop in inner[:MOST_INNER]:
        with suppress(ScanoptError):
            one = trace(graph, loop=loop.title, seed=seed, timeout=timeout, progress=progress)
            if one.arguments == found.arguments:
                more += (each for each in one.loops if each.title == loop.title)
    return replace(found, loops=(*found.loops, *more))


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
    steps = enumerated([f"step {one.step} of {one.loop}" for one in loop.outer_steps])
    where = f"in {steps}: " if steps else ""
    return replace(
        box,
        ports=tuple(
            replace(port, values=where + "; ".join(map(values_text, by_name[port.name])))
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
