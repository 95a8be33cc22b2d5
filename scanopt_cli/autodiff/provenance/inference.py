"""Which Scan is the pullback of which, read off a graph as it is: from names and from structure.

PyTensor names the pullback of ``f`` ``grad_of_f``, but anybody can call a loop that, and names
repeat. So a name only proposes; what a pullback reads must agree: the buffers and sequences of its
Scan, last row first, for as many steps. What does not single out one Scan is not decided.

A loop with tangents is called ``rop_of_f``. It does what ``f`` did and stands in its place, so
there is no Scan to find: the name is believed where the slots can be values and tangents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, get_idx_list

from scanopt_cli.analysis.lengths import is_full_slice
from scanopt_cli.autodiff.provenance.lineage import Origin
from scanopt_cli.autodiff.provenance.reach import Reach
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.naming import PULLBACK, TANGENTS
from scanopt_cli.ir.scan_view import ScanView, SlotKind, batch_ndim


class Direction(StrEnum):
    """Which way a Scan goes through time, seen from the loops that were differentiated."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UNKNOWN = "unknown"

    @property
    def opposite(self) -> Direction:
        """The other way."""
        return _OPPOSITE[self]


_OPPOSITE = {
    Direction.FORWARD: Direction.BACKWARD,
    Direction.BACKWARD: Direction.FORWARD,
    Direction.UNKNOWN: Direction.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class SequenceSource:
    """What a sequence reads its rows from, and whether it reads the last one first."""

    source: Variable
    is_reversed: bool


def infer(scans: Sequence[Apply], reach: Reach) -> dict[Apply, Origin]:
    """Return the origin of each of ``scans``, all Scans of one graph in topological order."""
    views = {node: ScanView.of(node) for node in scans}
    found: dict[Apply, Origin] = {}
    for node, view in views.items():
        if _carries_tangents(view):
            of = view.name.removeprefix(TANGENTS)
            found[node] = Origin(None, _times_differentiated(view.name), None, of)
            continue
        parent, reason = _parent(view, views, reach)
        if parent is not None:
            found[node] = Origin(parent, None)
        elif reason is not None:
            found[node] = Origin(None, None, reason)
        else:
            found[node] = Origin()
    return {node: _with_generation(origin, found) for node, origin in found.items()}


def directions(scans: Sequence[Apply], origins: Mapping[Apply, Origin]) -> dict[Apply, Direction]:
    """Return which way each of ``scans`` goes: against its parent, else as its sequences say."""
    found: dict[Apply, Direction] = {}

    def direction(node: Apply) -> Direction:
        trail: list[Apply] = []
        at: Apply | None = node
        while at is not None and at not in found and at not in trail:
            trail.append(at)
            at = origins[at].parent
        for step in reversed(trail):
            parent = origins[step].parent
            known = None if parent is None else found.get(parent)
            found[step] = _by_reading(step, found) if known is None else known.opposite
        return found[node]

    return {node: direction(node) for node in scans}


def rows_read(view: ScanView) -> Iterator[SequenceSource]:
    """Yield what each sequence of ``view`` reads, seen through slices."""
    for slot in view.of_kind(SlotKind.SEQ):
        yield _rows(slot.outer_input, view.batch_ndim)


def _parent(
    view: ScanView, views: Mapping[Apply, ScanView], reach: Reach
) -> tuple[Apply | None, str | None]:
    """The Scan that ``view`` is the pullback of, or why there is none though it looks like one."""
    is_named = bool(view.op.name) and view.name.startswith(PULLBACK)
    has_mit_mot = bool(view.of_kind(SlotKind.MIT_MOT))
    backwards = {rows.source for rows in rows_read(view) if rows.is_reversed}
    # `scan` makes no mit_mots, so a Scan without one may be a loop that is only called like that.
    if not has_mit_mot and not (is_named and backwards and _only_adds_up(view)):
        return None, None
    name = view.name.removeprefix(PULLBACK) if is_named else None
    if view.op.name and name is None:
        return None, "has the mit_mots of a pullback, but not the name of one"
    alike = [
        other
        for node, other in views.items()
        if node is not view.node
        and (other.op.name or None) == name
        and view.node not in reach.ancestors(node)
    ]
    if not alike:
        return None, f"there is no Scan {name or 'without a name'} that it could be the pullback of"
    evidence = {other.node: _evidence(view, other, backwards, reach) for other in alike}
    best = tuple(max(column) for column in zip(*evidence.values(), strict=True))
    if not any(best):
        return None, f"reads nothing of Scan {name or 'without a name'}"
    fitting = [node for node, found in evidence.items() if found == best]
    if len(fitting) == 1:
        return fitting[0], None
    return None, f"could be the pullback of any of {len(alike)} Scans called {name or 'nothing'}"


def _carries_tangents(view: ScanView) -> bool:
    """Whether a Scan is called after the loop whose tangents it carries, and can carry them.

    Beside what has a tangent stands the tangent, a slot of the same kind with the same taps, unless
    nobody reads the values.
    """
    if not (view.op.name and view.name.startswith(TANGENTS)):
        return False
    faces = Counter((slot.kind, slot.taps, slot.out_taps) for slot in view.outputs())
    return max(faces.values(), default=0) > 1


def _times_differentiated(name: str) -> int:
    """How many pullbacks and tangents the name of a Scan tells of."""
    times = 0
    while name.startswith((TANGENTS, PULLBACK)):
        name = name.removeprefix(TANGENTS if name.startswith(TANGENTS) else PULLBACK)
        times += 1
    return times


def _only_adds_up(view: ScanView) -> bool:
    """Whether every state starts at zero, as the sums do that a pullback without mit_mots keeps."""
    if view.is_while or view.of_kind(SlotKind.MIT_SOT, SlotKind.UNTRACED):
        return False
    return all(_is_zero(slot.outer_input) for slot in view.of_kind(SlotKind.SIT_SOT))


def _is_zero(variable: Variable) -> bool:
    """Whether a buffer is zero throughout, or was empty and had zeros written into it."""
    while not isinstance(variable, Constant):
        node = variable.owner
        op = None if node is None else core_op(node.op)
        if isinstance(op, Alloc | DimShuffle | SpecifyShape | Subtensor):
            variable = node.inputs[0]
        elif isinstance(op, IncSubtensor) and op.set_instead_of_inc:
            variable = node.inputs[1]
        else:
            return False
    return not np.any(variable.data)


def _evidence(
    view: ScanView, other: ScanView, backwards: set[Variable], reach: Reach
) -> tuple[int, int]:
    """How much of what ``view`` reads backwards ``other`` has, and whether it runs as long."""
    has = {rows.source for rows in rows_read(other)} | set(other.node.outputs)
    runs_as_long = other.node in reach.scans_before(view.n_steps) or (
        view.n_steps is other.n_steps and not isinstance(view.n_steps, Constant)
    )
    return len(backwards & has), int(runs_as_long)


def _with_generation(origin: Origin, origins: Mapping[Apply, Origin]) -> Origin:
    """``origin`` with as many generations as there are parents above it."""
    above: list[Apply] = []
    at = origin
    while at.parent is not None:
        if at.parent in above:
            return Origin(None, None, "two Scans look like the pullback of each other")
        above.append(at.parent)
        at = origins[at.parent]
    return replace(origin, generation=None if at.generation is None else at.generation + len(above))


def _by_reading(node: Apply, known: Mapping[Apply, Direction]) -> Direction:
    """The direction that all sequences agree on; a loop without sequences goes forward."""
    view = ScanView.of(node)
    ways = set()
    for rows in rows_read(view):
        source = known.get(rows.source.owner, Direction.FORWARD)
        ways.add(source.opposite if rows.is_reversed else source)
    if not ways:
        return Direction.UNKNOWN if view.of_kind(SlotKind.MIT_MOT) else Direction.FORWARD
    return ways.pop() if len(ways) == 1 else Direction.UNKNOWN


def _rows(variable: Variable, batch: int) -> SequenceSource:
    is_reversed = False
    while (step := _row_step(variable, batch)) is not None:
        is_reversed ^= step < 0
        variable = variable.owner.inputs[0]
    return SequenceSource(variable, is_reversed)


def _row_step(variable: Variable, batch: int) -> int | None:
    """The step of the slice that ``variable`` takes of the rows of another; ``None`` if none."""
    node = variable.owner
    if node is None:
        return None
    op, inputs, axis = node.op, list(node.inputs), batch
    if isinstance(op, Blockwise) and batch_ndim(node) == batch:
        op, axis = op.core_op, 0
    if not isinstance(op, Subtensor):
        return None
    indices = get_idx_list(inputs, op.idx_list)
    if len(indices) <= axis or not all(map(is_full_slice, indices[:axis])):
        return None
    rows = indices[axis]
    if not isinstance(rows, slice):
        return None
    if rows.step is None:
        return 1
    return int(rows.step.data) if isinstance(rows.step, Constant) else None
