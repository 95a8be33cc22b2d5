"""A series of numbers as a line of block characters: ``▁▂▄▇█``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_BLOCKS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "×"


def sparkline(rows: Sequence[np.ndarray], width: int) -> str:
    """Return the values of steps as a line of at most ``width`` letters.

    An array counts as the mean of its entries. If there are more steps than letters, a letter is
    the mean of several. A step with a NaN or an infinity is marked by a letter of its own.
    """
    numbers = np.asarray([_number(row) for row in rows], dtype=float)
    if not numbers.size or any(row.dtype.kind not in "biufc" for row in rows):
        return ""
    cells = np.array_split(numbers, min(width, len(numbers)))
    # Halved first: the difference of two large numbers is no infinity.
    means = np.asarray([cell.mean() / 2 if np.isfinite(cell).all() else np.nan for cell in cells])
    finite = means[np.isfinite(means)]
    low = finite.min() if finite.size else 0.0
    span = finite.max() - low if finite.size else 0.0
    return "".join(_letter(mean, low, span) for mean in means)


def _letter(mean: float, low: float, span: float) -> str:
    if not np.isfinite(mean):
        return _NOT_FINITE
    share = (mean - low) / span if span > 0 else 0.0
    return _BLOCKS[round(share * (len(_BLOCKS) - 1))]


def _number(row: np.ndarray) -> float:
    """Return the number that stands for the value of a step; NaN if one of them is not finite."""
    if row.dtype.kind not in "biufc" or not row.size:
        return np.nan
    values = np.abs(row) if row.dtype.kind == "c" else row
    with np.errstate(all="ignore"):
        return float(np.mean(values, dtype=float))
