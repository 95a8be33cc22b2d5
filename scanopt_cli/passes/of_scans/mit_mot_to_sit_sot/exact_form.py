"""The exact form of a mit_mot: states, sequences and traces that compute the same buffer.

A step of a mit_mot reads rows of one buffer and writes others, at positions that advance by one row
a step. With the taps counted from the earliest read, a step reads the rows at ``reads`` and writes
those at ``writes``. A row is final once the earliest write has passed it, and has its initial value
until the latest write reaches it. Therefore

- each write becomes a state of its own, with as many initial rows as the distance to the write
  before it (to the earliest read, for the earliest write); these are the rows of the initial buffer
  in between, and the reads in between become its taps;
- each read at the latest write or after it becomes a sequence of rows of the initial buffer;
- the final buffer is the whole buffer of the first state (or the trace of the earliest write, if
  nothing is read before it), then the last rows of the other states, then the remaining rows of the
  initial buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from scanopt_cli.analysis.affine import ONE, ZERO, AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.slots import Slot
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.parts import Part
from scanopt_cli.remarks import Reason, Why, because


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows from one write (or the earliest read) up to the next write, which make one state.

    ``end`` is the row that is written, ``begin`` the write before it; both are counted from the
    earliest read. ``reads`` are the rows read in between, ``part`` is the part of the final buffer
    that the state holds. If the stretch is empty, its write becomes a nit_sot; or, with
    ``has_zeros``, a sit_sot with one initial row of zeros, which keeps the shape of the rows if no
    step runs.
    """

    begin: int
    end: int
    reads: tuple[int, ...]
    part: Part
    has_zeros: bool = False

    @property
    def width(self) -> int:
        """The number of initial rows of the state."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Form:
    """A mit_mot in its exact form.

    ``ahead`` are the reads at the latest write or after it, and ``rest`` is the part of the final
    buffer that no step writes, ``None`` if it is empty.
    """

    stretches: tuple[Stretch, ...]
    ahead: tuple[int, ...]
    rest: Part | None

    @property
    def parts(self) -> list[Part]:
        """The parts of the final buffer, in order."""
        parts = [stretch.part for stretch in self.stretches]
        return parts if self.rest is None else [*parts, self.rest]

    @property
    def latest(self) -> int:
        """The latest write."""
        return self.stretches[-1].end


def rows_from_first(slot: Slot) -> tuple[list[int], list[int]]:
    """Return the rows that a step of a mit_mot reads and writes, counted from its earliest read."""
    first = min(slot.taps)
    return [tap - first for tap in slot.taps], [tap - first for tap in slot.out_taps]


def unfit(slot: Slot) -> Reason | None:
    """Return why the taps of a mit_mot have no exact form, ``None`` if they have one."""
    if not slot.taps or not slot.out_taps:
        return because(Why.TAPS_UNUSED)
    if min(slot.taps) > 0 or max(*slot.taps, *slot.out_taps) < 0:
        return because(Why.TAPS_ONE_SIDED)
    if min(slot.out_taps) < min(slot.taps):
        return because(Why.WRITES_EARLY)
    if len(set(slot.out_taps)) < len(slot.out_taps):
        return because(Why.WRITES_TWICE)
    return None


def form_of(slot: Slot, length: AffineExpr, steps: AffineExpr, lengths: Lengths) -> Form | None:
    """Return the exact form of a mit_mot, ``None`` if its buffer is not provably long enough.

    ``length`` is that of the buffer. Where a step reaches past the end of the buffer, PyTensor
    starts again at its first row; that has no exact form.
    """
    reads, writes = rows_from_first(slot)
    if not lengths.provably_le(steps + max(*reads, *writes), length):
        return None
    # If there are no steps, PyTensor knows the shape of a state's rows, but not of a trace's.
    loses_shape = bool(slot.inner_outputs[0].type.ndim) and not lengths.provably_le(ONE, steps)
    bounds = [0, *sorted(writes)]
    stretches: list[Stretch] = []
    for begin, end in pairwise(bounds):
        inside = tuple(sorted({read for read in reads if begin <= read < end}))
        has_zeros = begin == end and loses_shape
        first = AffineExpr(begin - has_zeros)
        low = steps + begin if stretches else ZERO
        high = steps + end
        part = Part(low=low, high=high, first=first, length=high - first)
        stretches.append(Stretch(begin, end, inside, part, has_zeros))
    latest = bounds[-1]
    written = steps + latest
    rest = None if written == length else Part(written, length, written, length - written)
    return Form(tuple(stretches), tuple(sorted({r for r in reads if r >= latest})), rest)
