"""Which batched loops have batches of one shape, as far as it can be shown."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from scanopt_cli.analysis.lengths import AffineExpr, Lengths
from scanopt_cli.ir.scan_view import ScanView


class BatchShapes:
    """Tells the shapes of batches, so that equal keys mean equal shapes.

    A Blockwise raises if its inputs differ along an axis of the batch (but for those that are
    broadcast along it), so all lengths that meet in one loop are equal if the loop can run at all.
    What the loops of a graph show together is a union-find over lengths.

    ``told`` tells an affine expression, equal for equal lengths only.
    """

    def __init__(self, told: Callable[[AffineExpr], Hashable]) -> None:
        self._told = told
        self._lengths = Lengths()
        self._parents: dict[Hashable, Hashable] = {}

    def learn(self, view: ScanView) -> None:
        """Take note of what ``view``, which always runs, shows to be equal."""
        for axis in range(view.batch_ndim):
            first, *others = self._along(view, axis) or [None]
            for other in others:
                self._parents[self._root(other)] = self._root(first)

    def of(self, view: ScanView) -> Hashable:
        """Tell the shape of the batch of ``view``; ``None`` on an axis along which all have 1."""
        axes = (self._along(view, axis) for axis in range(view.batch_ndim))
        return tuple(self._root(found[0]) if found else None for found in axes)

    def _along(self, view: ScanView, axis: int) -> list[Hashable]:
        inputs = (view.n_steps, *(slot.outer_input for slot in view.slots))
        spanning = [v for v in inputs if not v.type.broadcastable[axis]]
        return [self._told(self._lengths.length_of(variable, axis)) for variable in spanning]

    def _root(self, key: Hashable) -> Hashable:
        while (parent := self._parents.setdefault(key, key)) != key:
            key = self._parents[key] = self._parents.setdefault(parent, parent)
        return key
