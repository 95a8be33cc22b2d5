"""Composes slices of slices along one axis into one row range of their common source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.indices import axis_of, rows_index
from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import ZERO, AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.passes.clean_slices.canonical_slices import canonical_index, canonical_slice

# Chains of slices are short; a longer one is shortened from its outer end.
_LINKS = 8


@dataclass(frozen=True, slots=True)
class Chain:
    """What a read takes: the row range ``rows`` of ``array`` along ``axis``.

    ``length`` is the length of ``array`` along the axis. ``is_row`` if it takes one row by an index
    and drops the axis; ``links`` counts the nodes.
    """

    array: Variable
    axis: int
    length: AffineExpr
    rows: RowRange
    is_row: bool
    links: int

    def index(self, lengths: Lengths) -> Any:
        """Return the plainest index that reads the same rows of `array`, ``None`` if none does."""
        if self.is_row:
            return canonical_index(self.rows.low, self.length)
        return canonical_slice(self.rows, self.length, lengths)

    def behind_slice(self, lengths: Lengths) -> Chain | None:
        """Return the same rows as a range of the variable that `array` is a slice of.

        ``None`` if `array` is no slice along the axis, or if its rows cannot be decided.
        """
        cut = sliced(self.array, self.axis)
        if cut is None:
            return None
        source, index = cut
        length = lengths.length_of(source, self.axis)
        outer = RowRange(ZERO, length).cut(index, lengths)
        if outer is None:
            return None
        rows = self.rows.within(outer)
        return replace(self, array=source, length=length, rows=rows, links=self.links + 1)


def sliced(variable: Variable, axis: int) -> tuple[Variable, slice] | None:
    """Return what a variable is a slice of along an axis, and the slice; ``None`` if of none."""
    node = variable.owner
    if node is None or not isinstance(node.op, Subtensor):
        return None
    index = rows_index(node, axis)
    return (node.inputs[0], index) if isinstance(index, slice) else None


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
        rows: RowRange | None = RowRange(ZERO, length)
        for cut in reversed(cuts[:depth]):
            rows = None if rows is None else rows.cut(cut, lengths)
        rows = None if rows is None else rows.taken(last, lengths)
        if rows is not None:
            is_row = not isinstance(last, slice)
            yield Chain(sources[depth], axis, length, rows, is_row, depth + 1)


def _links(node: Apply, axis: int) -> tuple[list[Variable], list[slice]]:
    """The sources of a chain of slices that ends at ``node``, and the slice of each that gives the
    one before.
    """
    sources = [node.inputs[0]]
    cuts: list[slice] = []
    while len(cuts) < _LINKS and (cut := sliced(sources[-1], axis)) is not None:
        source, index = cut
        sources.append(source)
        cuts.append(index)
    return sources, cuts
