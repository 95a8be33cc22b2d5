"""Lengths of slices that go backwards, and what a read that has not failed says of lengths."""

from __future__ import annotations

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.scans.lengths import Lengths, Linear
from scanopt_cli.scans.slice_chains import axis_of
from scanopt_cli.scans.windows import Window, rows_index

# A bound is read where a length is asked for, and the other way round; past this depth in all, a
# length is an atom.
_DEPTH = 30


class SliceLengths(Lengths):
    """Lengths that know how long ``x[3::-1]`` is, and take one form as not negative."""

    def __init__(self, n_steps: Variable | None = None, *, floor: Linear | None = None) -> None:
        self._floor: Linear | None = None
        self._nested = 0
        self._shown: dict[tuple[Linear, Linear], bool] = {}
        super().__init__(n_steps)
        # What was shown on the way did not know the steps yet.
        self._shown.clear()
        self._floor = floor

    def value_of(self, variable: Variable, depth: int = _DEPTH) -> Linear:
        """Return the whole number that a scalar ``variable`` holds, as a linear form."""
        self._nested += 1
        try:
            return super().value_of(variable, min(depth, _DEPTH - self._nested))
        finally:
            self._nested -= 1

    def length_of(self, variable: Variable, axis: int = 0, depth: int = _DEPTH) -> Linear:
        """Return how long ``variable`` is along ``axis``, as a linear form."""
        self._nested += 1
        try:
            return super().length_of(variable, axis, min(depth, _DEPTH - self._nested))
        finally:
            self._nested -= 1

    def at_most(self, left: Linear, right: Linear) -> bool:
        """Whether ``left <= right`` can be shown."""
        known = self._shown.get((left, right))
        if known is None:
            known = super().at_most(left, right) or (
                self._floor is not None and super().at_most(left + self._floor, right)
            )
            self._shown[left, right] = known
        return known

    def _subtensor_length(self, node: Apply, axis: int, depth: int) -> Linear | None:
        length = super()._subtensor_length(node, axis, depth)
        index = rows_index(node, axis) if length is None else None
        if not isinstance(index, slice):
            return length
        whole = Window(Linear(), self.length_of(node.inputs[0], axis, depth - 1))
        window = whole.cut(index, self)
        return None if window is None else window.length


def floor_of(node: Apply, lengths: Lengths) -> Linear | None:
    """Return what a read ``x[i]`` with a constant ``i`` shows not to be negative, if it is news."""
    axis = axis_of(node) if isinstance(node.op, Subtensor) else None
    index = None if axis is None else rows_index(node, axis)
    if axis is None or not isinstance(index, Constant):
        return None
    place = int(index.data)
    needed = Linear(place + 1 if place >= 0 else -place)
    form = lengths.length_of(node.inputs[0], axis) - needed
    return None if form.is_constant or lengths.at_most(Linear(), form) else form
