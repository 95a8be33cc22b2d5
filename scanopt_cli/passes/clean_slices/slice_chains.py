"""Composes slices of slices along one axis into one row range of their common source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.indices import axis_of, rows_index
from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.passes.clean_slices.canonical_slices import canonical_index, canonical_slice

# Chains of slices are short; a longer one is shortened from its outer end.
_LINKS = 8


@dataclass(frozen=True, slots=True)
class Chain:
    """What a read takes: the row range ``window`` of ``base`` along ``axis``.

    ``length`` is the length of ``base`` along the axis. ``is_row`` if it takes one row by an index
    and drops the axis; ``links`` counts the nodes.
    """

    base: Variable
    axis: int
    length: AffineExpr
    window: RowRange
    is_row: bool
    links: int

    @property
    def is_whole(self) -> bool:
        """Whether every row is taken, in either order."""
        return (
            not self.is_row and self.window.low == AffineExpr() and self.window.high == self.length
        )

    def index(self, lengths: Lengths) -> Any:
        """Return the plainest index that reads the same rows of `base`, ``None`` if none does."""
        if self.is_row:
            return canonical_index(self.window.low, self.length)
        return canonical_slice(self.window, self.length, lengths)

    def behind_slice(self, lengths: Lengths) -> Chain | None:
        """Return the same rows as a range of the variable that `base` is a slice of.

        ``None`` if `base` is no slice along the axis, or if its rows cannot be decided.
        """
        node = self.base.owner
        cut = None if node is None or not isinstance(node.op, Subtensor) else node
        index = None if cut is None else rows_index(cut, self.axis)
        if cut is None or not isinstance(index, slice):
            return None
        length = lengths.length_of(cut.inputs[0], self.axis)
        outer = RowRange(AffineExpr(), length).cut(index, lengths)
        if outer is None:
            return None
        return Chain(
            cut.inputs[0],
            self.axis,
            length,
            self.window.within(outer),
            self.is_row,
            self.links + 1,
        )


def chains(node: Apply, lengths: Lengths) -> Iterator[Chain]:
    """Yield what a Subtensor takes of each variable in its chain of slices, deepest first.

    Only slices of the same axis are followed; variables whose rows cannot be decided are left out.
    """
    axis = axis_of(node)
    if axis is None or not isinstance(node.op, Subtensor):
        return
    last = rows_index(node, axis)
    sources, cuts = _links(node, axis)
    for depth in range(len(cuts), -1, -1):
        length = lengths.length_of(sources[depth], axis)
        window: RowRange | None = RowRange(AffineExpr(), length)
        for cut in reversed(cuts[:depth]):
            window = None if window is None else window.cut(cut, lengths)
        window = None if window is None else window.taken(last, lengths)
        if window is not None:
            is_row = not isinstance(last, slice)
            yield Chain(sources[depth], axis, length, window, is_row, depth + 1)


def _links(node: Apply, axis: int) -> tuple[list[Variable], list[slice]]:
    """The sources of a chain of slices that ends at ``node``, and the slice of each that gives the
    one before.
    """
    sources = [node.inputs[0]]
    cuts: list[slice] = []
    while len(cuts) < _LINKS:
        inner = sources[-1].owner
        if inner is None or not isinstance(inner.op, Subtensor):
            break
        index = rows_index(inner, axis)
        if not isinstance(index, slice):
            break
        cuts.append(index)
        sources.append(inner.inputs[0])
    return sources, cuts
