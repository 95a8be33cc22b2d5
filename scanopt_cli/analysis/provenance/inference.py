"""Infer which Scan is the pullback of which from the names and the structure of a graph.

PyTensor names the pullback of ``f`` ``grad_of_f``, but a user may give any loop that name, and
names repeat. So a name only proposes candidates. What the pullback reads selects among them: it
reads the buffers and sequences of its parent, last row first, for as many steps. If this does not
single out one Scan, the parent stays unknown.

A loop with tangents is called ``rop_of_f``. It computes what ``f`` computed and replaces it, so
there is no parent to find: the name is trusted if the slots can be values and tangents.

`time_directions` finds which Scans run backward in time: a pullback runs opposite to its parent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.analysis.accesses.indices import indices_from
from scanopt_cli.analysis.provenance.nearest_scans import NearestScans
from scanopt_cli.analysis.provenance.scan_origin import Origin
from scanopt_cli.analysis.step_rows import rows_by_step
from scanopt_cli.ir.indexing import number
from scanopt_cli.ir.inner_graphs import PULLBACK, TANGENTS, core_op
from scanopt_cli.ir.scan_view import view_of
from scanopt_cli.ir.slots import SlotKind, SlotView


class TimeDirection(StrEnum):
    """The direction of a Scan in time, relative to the loops that were differentiated."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UNKNOWN = "unknown"

    @property
    def opposite(self) -> TimeDirection:
        """The reverse of this direction; the reverse of ``UNKNOWN`` is ``UNKNOWN``."""
        backward, forward = TimeDirection.BACKWARD, TimeDirection.FORWARD
        return {forward: backward, backward: forward}.get(self, self)


def infer(nearest: NearestScans) -> dict[Apply, Origin]:
    """Return the origin of each Scan of a graph."""
    candidates = _Candidates({node: view_of(node) for node in nearest.scans}, nearest)
    found = {node: _origin(view, candidates) for node, view in candidates.views.items()}
    return {node: _with_generation(origin, found) for node, origin in found.items()}


def time_directions(
    scans: Sequence[Apply], origins: Mapping[Apply, Origin]
) -> dict[Apply, TimeDirection]:
    """Return the direction of each of ``scans``.

    It is opposite to that of the parent, or follows from the sequences if there is no known parent.
    """
    found: dict[Apply, TimeDirection] = {}
    for node in scans:
        chain: list[Apply] = []
        at: Apply | None = node
        while at is not None and at not in found and at not in chain:
            chain.append(at)
            at = origins[at].parent
        for scan in reversed(chain):
            parent = origins[scan].parent
            known = None if parent is None else found.get(parent)
            found[scan] = _by_sequences(scan, found) if known is None else known.opposite
    return found


def rows_read(view: SlotView) -> Iterator[tuple[Variable, bool]]:
    """Yield what each sequence of ``view`` reads its rows from, and whether the last one first.

    Looks through slices. A constant of a TracedLoop is a sequence if steps read its rows in their
    order, or in reverse.
    """
    for slot in view.of_kind(SlotKind.SEQ):
        yield _rows(slot.outer_input, view.batch_ndim)
    for slot, direction in rows_by_step(view):
        source, is_reversed = _rows(slot.outer_input, 0)
        yield source, is_reversed ^ (direction == -1)


@dataclass(slots=True)
class _Candidates:
    """The Scans of a graph by what their pullbacks would read, to find the parent of a pullback.

    ``holders`` are the Scans that read or compute a variable, ``timed`` those of a step count.
    """

    views: Mapping[Apply, SlotView]
    nearest: NearestScans
    holders: dict[Variable, list[Apply]] = field(default_factory=dict)
    timed: dict[Variable, list[Apply]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the Scans."""
        for node, view in self.views.items():
            for variable in {source for source, _ in rows_read(view)}.union(node.outputs):
                self.holders.setdefault(variable, []).append(node)
            if not isinstance(view.n_steps, Constant):
                self.timed.setdefault(view.n_steps, []).append(node)

    def alike(self, view: SlotView, name: str | None) -> list[Apply]:
        """Return the Scans that ``view`` may be the pullback of, by their name and their place."""
        return [node for node in self.views if self._is_alike(node, view, name)]

    def evidence(
        self, view: SlotView, name: str | None, backwards: set[Variable]
    ) -> dict[Apply, tuple[int, int]]:
        """Return how strongly ``view`` looks like the pullback of Scans, of those that it may be.

        First, how many of its ``backwards`` sources are sequences or outputs of the Scan; second,
        whether its trip count is computed from the Scan or is the same variable.
        """
        read = Counter(node for source in backwards for node in self.holders.get(source, ()))
        as_long = {*self.nearest.scans_before(view.n_steps), *self.timed.get(view.n_steps, ())}
        found = (node for node in self.views.keys() & {*read, *as_long})
        return {
            node: (read[node], int(node in as_long))
            for node in found
            if self._is_alike(node, view, name)
        }

    def _is_alike(self, node: Apply, view: SlotView, name: str | None) -> bool:
        return (
            node is not view.node
            and (self.views[node].op.name or None) == name
            and view.node not in self.nearest.ancestors(node)
        )


def _origin(view: SlotView, candidates: _Candidates) -> Origin:
    """The origin of ``view``, without its generation if it is a pullback."""
    if _carries_tangents(view):
        of = view.name.removeprefix(TANGENTS)
        return Origin(None, _times_differentiated(view.name), None, of)
    is_named = bool(view.op.name) and view.name.startswith(PULLBACK)
    has_mit_mot = bool(view.of_kind(SlotKind.MIT_MOT))
    backwards = {source for source, is_reversed in rows_read(view) if is_reversed}
    # `scan` makes no mit_mots. So a loop without one may be a user's that only has the name of a
    # pullback.
    if not has_mit_mot and not (is_named and backwards and _can_be_pullback(view)):
        return Origin()
    name = view.name.removeprefix(PULLBACK) if is_named else None
    if view.op.name and name is None:
        why = "has the mit_mots of a pullback, but not the name of one"
        return Origin(None, None, why)
    evidence = candidates.evidence(view, name, backwards)
    if not evidence:
        called = name or "without a name"
        if candidates.alike(view, name):
            return Origin(None, None, f"reads nothing of Scan {called}")
        return Origin(None, None, f"there is no Scan {called} that it could be the pullback of")
    best = tuple(max(column) for column in zip(*evidence.values(), strict=True))
    fitting = [node for node, found in evidence.items() if found == best]
    if len(fitting) == 1:
        return Origin(fitting[0], None)
    count = len(candidates.alike(view, name))
    why = f"could be the pullback of any of {count} Scans called {name or 'nothing'}"
    return Origin(None, None, why)


def _carries_tangents(view: SlotView) -> bool:
    """Whether a Scan has the name of a loop with tangents, and slots for them.

    A tangent has a slot of the same kind and with the same taps as its value, so two such slots are
    required. There may be only one if the values are dead.
    """
    if not (view.op.name and view.name.startswith(TANGENTS)):
        return False
    counts = Counter((slot.kind, slot.taps, slot.out_taps) for slot in view.outputs())
    return max(counts.values(), default=0) > 1


def _times_differentiated(name: str) -> int:
    """How many prefixes of pullbacks and of loops with tangents the name of a Scan has."""
    times = 0
    while name.startswith((TANGENTS, PULLBACK)):
        name = name.removeprefix(TANGENTS if name.startswith(TANGENTS) else PULLBACK)
        times += 1
    return times


def _can_be_pullback(view: SlotView) -> bool:
    """Whether the states can be those of a pullback without mit_mots.

    Of a Scan, they are sums, which start at zero; a TracedLoop carries cotangents as well.
    """
    if view.is_while or view.of_kind(SlotKind.MIT_SOT, SlotKind.UNTRACED):
        return False
    return all(_is_zero(slot.outer_input) for slot in view.of_kind(SlotKind.SIT_SOT))


def _is_zero(variable: Variable) -> bool:
    """Whether a buffer is zero, or has zeros written into it; its other rows are not checked."""
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


def _with_generation(origin: Origin, origins: Mapping[Apply, Origin]) -> Origin:
    """Return ``origin`` with its generation: one more for each parent above it."""
    above: list[Apply] = []
    at = origin
    while at.parent is not None:
        if at.parent in above:
            return Origin(None, None, "two Scans look like the pullback of each other")
        above.append(at.parent)
        at = origins[at.parent]
    return replace(origin, generation=None if at.generation is None else at.generation + len(above))


def _by_sequences(node: Apply, known: Mapping[Apply, TimeDirection]) -> TimeDirection:
    """The direction that all sequences agree on.

    Without sequences it is forward, or unknown if there are mit_mots.
    """
    view = view_of(node)
    ways = set()
    for source, is_reversed in rows_read(view):
        way = known.get(source.owner, TimeDirection.FORWARD)
        ways.add(way.opposite if is_reversed else way)
    if not ways:
        return TimeDirection.UNKNOWN if view.of_kind(SlotKind.MIT_MOT) else TimeDirection.FORWARD
    return ways.pop() if len(ways) == 1 else TimeDirection.UNKNOWN


def _rows(variable: Variable, batch: int) -> tuple[Variable, bool]:
    is_reversed = False
    while (step := _row_step(variable, batch)) is not None:
        is_reversed ^= step < 0
        variable = variable.owner.inputs[0]
    return variable, is_reversed


def _row_step(variable: Variable, batch: int) -> int | None:
    """The step of the slice of rows that computes ``variable``; ``None`` if no such slice does."""
    node = variable.owner
    if node is None or not isinstance(core_op(node.op), Subtensor):
        return None
    rows, *_ = indices_from(node, batch) or [None]
    return number(rows.step, 1) if isinstance(rows, slice) else None
