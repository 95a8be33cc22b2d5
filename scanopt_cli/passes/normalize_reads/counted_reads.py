"""Finds readers that count rows from the first, up to the trip count, and counts from the end."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable

from scanopt_cli.analysis.accesses.accesses import Access, accesses
from scanopt_cli.analysis.affine import ONE, AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import along
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.slots import Slot, SlotView


def counted_reads(
    view: SlotView, slot: Slot, lengths: Lengths, clients: Clients
) -> dict[Variable, Variable]:
    """Return ``ys[-1]`` for each read ``ys[n-1]`` of the ``n`` steps of a loop.

    The loop may not stop early, and the buffer of ``slot`` must hold every step.
    """
    found: dict[Variable, Variable] = {}
    for access in accesses(view, slot, clients):
        length = lengths.steps + access.n_initial
        new = _counted_from_end(access, length, lengths)
        if new is not None:
            found[access.result] = new
    return found


def _counted_from_end(access: Access, length: AffineExpr, lengths: Lengths) -> Variable | None:
    """``x[-k]`` for a read ``x[n-k]`` of ``n`` rows, and likewise for the bounds of slices.

    ``None`` if no bound has that form, or if ``-k`` may be another row when there are few rows. For
    ``k`` = 1 it is the same row, or the same error, whatever the length.
    """

    def moved(bound: Any) -> Any:
        if bound is None or isinstance(bound, Constant):
            return bound
        back = length - lengths.value_of(bound)
        if not back.is_constant or back.constant < 1:
            return bound
        is_same = back == ONE or lengths.provably_le(back, length)
        return -back.constant if is_same else bound

    if access.index is None or isinstance(access.index.value, np.ndarray):
        return None
    index = access.index.value
    if isinstance(index, slice):
        new: Any = slice(moved(index.start), moved(index.stop), index.step)
        is_new = new.start is not index.start or new.stop is not index.stop
    else:
        new = moved(index)
        is_new = new is not index
    if not is_new:
        return None
    source: Any = access.source
    made: Variable = source[along(access.axis, new, *access.index.rest)]
    made.name = access.result.name
    return made
