"""Decides which batched loops have batches of provably equal shape."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.disjoint_sets import DisjointSets
from scanopt_cli.ir.slots import SlotView


class BatchShapes:
    """Computes keys of batch shapes: equal keys mean equal shapes.

    A Blockwise raises if its inputs have different lengths along a batch axis (except those that
    are broadcast along it). So the lengths of a loop's inputs along one batch axis are all equal if
    the loop can run at all. Disjoint sets of lengths collect these equalities from all loops.

    ``key_of`` returns the key of an affine expression: equal keys mean equal lengths.
    """

    def __init__(self, key_of: Callable[[AffineExpr], Hashable]) -> None:
        self._key_of = key_of
        self._lengths = Lengths()
        self._equal = DisjointSets[Hashable]()

    def learn(self, view: SlotView) -> None:
        """Record the lengths that ``view`` requires to be equal; the loop must always run."""
        for axis in range(view.batch_ndim):
            first, *others = self._along(view, axis) or [None]
            for other in others:
                self._equal.unite(other, first)

    def of(self, view: SlotView) -> Hashable:
        """Return the key of the batch shape of ``view``.

        An axis along which every input is broadcast has ``None`` in the key.
        """
        axes = (self._along(view, axis) for axis in range(view.batch_ndim))
        return tuple(self._equal.find(found[0]) if found else None for found in axes)

    def _along(self, view: SlotView, axis: int) -> list[Hashable]:
        inputs = (view.n_steps, *(slot.outer_input for slot in view.slots))
        spanning = [v for v in inputs if not v.type.broadcastable[axis]]
        return [self._key_of(self._lengths.length_of(variable, axis)) for variable in spanning]
