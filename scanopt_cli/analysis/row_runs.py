"""What the rows of a buffer hold: runs of equal rows, with lengths as affine expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.analysis.accesses.row_ranges import ordered
from scanopt_cli.analysis.affine import ZERO, AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.interning import has_negative_zero


@dataclass(frozen=True, slots=True)
class Run:
    """``length`` rows that all equal ``value``; if it is ``None``, they are unknown.

    A value is one number for every element of the row, or the row itself, with the batch axes in
    front.
    """

    length: AffineExpr
    value: Variable | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """A buffer as runs of equal rows.

    ``is_certain`` if computing the buffer provably cannot fail. Otherwise the runs are correct
    where it does not fail, and a rewrite that removes the buffer would lose the error.
    """

    runs: tuple[Run, ...]
    is_certain: bool = True

    def between(
        self, low: AffineExpr, high: AffineExpr, lengths: Lengths
    ) -> tuple[Run, ...] | None:
        """Return the runs of the rows from ``low`` to ``high``, ``None`` if undecided."""
        found = []
        for start, run in self._placed():
            end = start + run.length
            if lengths.provably_le(end, low) or lengths.provably_le(high, start):
                continue
            begin, stop = ordered(start, low, lengths), ordered(high, end, lengths)
            if begin is None or stop is None:
                return None
            found.append(Run(stop[0] - begin[1], run.value))
        return tuple(found)

    def common(self, low: AffineExpr, high: AffineExpr, lengths: Lengths) -> Variable | None:
        """Return the value that all rows from ``low`` to ``high`` have, ``None`` if none is known.

        The range may be empty.
        """
        values = [
            run.value
            for start, run in self._placed()
            if not lengths.provably_le(start + run.length, low)
            and not lengths.provably_le(high, start)
        ]
        first = values[0] if values else None
        return first if all(_same(first, value) for value in values) else None

    def _placed(self) -> Iterator[tuple[AffineExpr, Run]]:
        start = ZERO
        for run in self.runs:
            yield start, run
            start = start + run.length


def is_positive_zero(value: Variable | None) -> bool:
    """Whether every element of ``value`` is provably 0, and not -0.0."""
    if not isinstance(value, TensorConstant) or has_negative_zero(value):
        return False
    return not np.any(value.data)


def _same(left: Variable | None, right: Variable | None) -> bool:
    if left is None or right is None:
        return False
    if isinstance(left, Constant) and isinstance(right, Constant):
        return bool(left.type == right.type and left.data.tobytes() == right.data.tobytes())
    return left is right
