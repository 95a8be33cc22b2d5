"""Windows: of a trace that is read from its end only, the last rows, in a ring that is carried.

A ring of ``k`` rows is a state of shape ``(k, …)``. Row ``r`` of the trace is written into row
``r % k`` of the ring, so that after the last step the ring holds the last ``k`` rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.accesses.accesses import Access
from scanopt_cli.analysis.count_variables import as_count
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.loop.trace_rows import trace_type, with_row

_LESS = 4
"""A ring is carried only if the loop may run so many times more steps than it has rows."""


@dataclass(slots=True)
class Window:
    """The last rows of a trace, and those who read them.

    ``n_initial`` is 1 if the initial row of a state counts among the rows, else 0. The ring has
    room for ``most`` rows, or as many as there are: ``size``. ``last`` stands for the ring after
    the last step.
    """

    slot: Slot
    accesses: Sequence[Access]
    n_initial: int
    most: int
    size: Any
    last: Variable

    @property
    def reads(self) -> tuple[str, ...]:
        """How the rows are read."""
        return tuple(dict.fromkeys(access.text for access in self.accesses))


def windows_of(slot: Slot, accesses: Sequence[Access], lengths: Lengths) -> list[Window] | None:
    """Return windows for all readers of a trace, ``None`` if one may read rows from its start.

    Rows that the graph joins to the trace are none of the loop's.
    """
    if any(access.n_initial > slot.n_initial for access in accesses):
        return None
    rows = [_last_rows(access) for access in accesses]
    found = []
    for n_initial in (0, 1):
        mine = [
            (access, n)
            for access, n in zip(accesses, rows, strict=True)
            if access.n_initial == n_initial
        ]
        if not mine:
            continue
        needed = [n for _, n in mine if n is not None]
        if len(needed) < len(mine):
            return None
        most = max(1, *needed)
        if lengths.provably_le(lengths.steps, _LESS * most):
            return None
        room = lengths.steps + n_initial
        is_sure = lengths.provably_le(most, room)
        size = most if is_sure else pt.minimum(most, as_count(room))
        kind = trace_type(slot.inner_outputs[0].type)
        found.append(Window(slot, [access for access, _ in mine], n_initial, most, size, kind()))
    return found


def add_ring(view: LoopView, window: Window, row_shape: Sequence[Any]) -> None:
    """Let an unfrozen loop carry the ring of a window."""
    index: Any = view.index
    (value,) = window.slot.inner_outputs
    ring: Any = window.last.type()
    start: Any = pt.empty((window.size, *row_shape), dtype=ring.type.dtype)
    if window.n_initial:
        start = pt.set_subtensor(start[0], window.slot.outer_input)
    length = ring.shape[0] if isinstance(window.size, Variable) else window.size
    place = (index + window.n_initial) % length
    view.slots.append(
        Slot(
            SlotKind.STATE,
            0,
            (-1,),
            (0,),
            [ring],
            [ring.type.filter_variable(with_row(ring, place, value))],
            outer_input=ring.type.filter_variable(start),
            last=window.last,
        )
    )


def read_from_ring(
    window: Window, made: Mapping[Variable, Variable], n_done: Any
) -> dict[Variable, Variable]:
    """Return what each reader of a window reads, given the outputs of the loop that carries it."""
    ring: Any = made[window.last]
    n_rows = n_done + window.n_initial
    kept = pt.minimum(window.size, n_rows)
    # 0, 1, 2, … up to ``kept``; JAX takes no `arange` of a length that is computed of shapes.
    counted = pt.cumsum(pt.ones(kept, dtype="int64"), axis=0) - 1
    rows = ring[(n_rows - kept + counted) % window.size]
    found = {}
    for access in window.accesses:
        source = rows[::-1] if access.is_reversed else rows
        (result,) = access.node.clone_with_new_inputs([source, *access.node.inputs[1:]]).outputs
        found[access.result] = result
    return found


def _last_rows(access: Access) -> int | None:
    """Return how many last rows a reader needs, ``None`` if it may need any."""
    if access.position or access.extent is None or any(index.rest for index in access.path):
        return None
    return access.extent.n_last
