"""How much more memory the rows of all steps take than the sequences that they replace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.compile.builders import infer_shape

from scanopt_cli.analysis.formulas import Formula
from scanopt_cli.analysis.lengths import Lengths


@dataclass(frozen=True, slots=True)
class Growth:
    """The bytes that arrays of all steps take more than others that are read no longer.

    Attributes
    ----------
    size
        The bytes, as a formula of the lengths that are not known.
    has_more_axes
        Whether an array has more axes than each that it is computed of.
    """

    size: Formula
    has_more_axes: bool

    @classmethod
    def of(
        cls, made: Sequence[Any], replaced: Iterable[Any], sources: Iterable[Any], lengths: Lengths
    ) -> Growth:
        """Return the growth by arrays of all steps, of which ``made`` are the rows.

        They are computed of rows of ``sources``, of which some are ``replaced``.
        """
        rows = (_bytes(row, lengths).times([lengths.steps]) for row in made)
        others = (_bytes(array, lengths).scaled(-1) for array in replaced)
        most = max((_axes(array) - 1 for array in sources), default=0)
        has_more_axes = any(_axes(row) > most for row in made)
        return cls(Formula.total([*rows, *others]), has_more_axes)

    def fits(self, most: int) -> bool:
        """Whether it is at most so many bytes.

        What depends on lengths that are not known counts as such if no array has more axes than
        those that it is computed of: then lengths are of one order.
        """
        unknown = [count for lengths, count in self.size.terms.items() if lengths]
        if any(count > 0 for count in unknown):
            return not self.has_more_axes
        return self.size.terms.get((), 0) <= most

    def __str__(self) -> str:
        """Return the bytes, 0 if they are less."""
        return str(self.size) if any(c > 0 for c in self.size.terms.values()) else "0"


def _axes(array: Any) -> int:
    """Return how many axes an array has whose length is not 1 by its type."""
    return sum(length != 1 for length in array.type.shape)


def _bytes(array: Any, lengths: Lengths) -> Formula:
    """Return how many bytes an array takes."""
    ((*shape,),) = infer_shape([array], (), ())
    axes = [
        lengths.length_of(array, axis) if known is not None else lengths.value_of(length)
        for axis, (length, known) in enumerate(zip(shape, array.type.shape, strict=True))
    ]
    return Formula({(): array.type.numpy_dtype.itemsize}).times(axes)
