"""Rows of a loop's output that its readers take, where the trip count is a known number.

With every bound a number, a chain of slices takes a range of rows, however it is written. So it can
be rewritten: to count from the end, or to read a buffer with fewer rows after those it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable

from scanopt_cli.analysis.accesses.accesses import Clients, sequence_steps
from scanopt_cli.analysis.accesses.indices import RowIndex, read_index
from scanopt_cli.ir.indexing import taken
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot

type Rows = range | int | list[int]


@dataclass(frozen=True, slots=True)
class Taken:
    """``variable``, which takes ``rows`` of a buffer: a range, one row or a list of rows.

    ``rest`` are the indices of the axes after that of the rows.
    """

    variable: Variable
    rows: Rows
    rest: tuple[Any, ...] = ()

    @property
    def places(self) -> range | list[int]:
        """The rows as a sequence."""
        return [self.rows] if isinstance(self.rows, int) else self.rows

    @property
    def ends(self) -> tuple[int, int] | None:
        """The smallest and the largest row; ``None`` if no row is taken."""
        places = self.places
        if not places:
            return None
        # A range is not walked through: it may be as long as a loop.
        few = (places[0], places[-1]) if isinstance(places, range) else places
        return min(few), max(few)

    def of(self, buffer: Any, axis: int, first: int, length: int, *, from_end: bool) -> Variable:
        """Return the same rows of ``buffer``, whose ``length`` rows start at row ``first``."""
        index = _index(self.rows, first, length, from_end=from_end)
        made = taken(buffer, axis, index, *self.rest)
        if made is not buffer:
            made.name = self.variable.name
        return made


class RowsTaken:
    """Finds the rows that each reader takes of the outputs of a loop of ``steps`` steps.

    `of` raises `LookupError` for a read that is out of bounds: the graph must keep that error.
    """

    def __init__(self, view: ScanView, steps: int, clients: Clients) -> None:
        self._axis = view.batch_ndim
        self._steps = steps
        self._clients = clients

    def of(self, slot: Slot) -> list[Taken]:
        """Return what readers take of the output of ``slot``.

        For readers that are not an index or slice in numbers, it is the output itself.
        """
        return list(self._taken(slot.output, range(self._steps + slot.n_initial)))

    def _taken(self, variable: Variable, rows: range) -> Iterator[Taken]:
        """Yield what readers take of ``variable``, which holds ``rows`` of the buffer."""
        first: int | None = None
        for node, position in self._clients(variable):
            index = read_index(node, self._axis) if position == 0 else None
            if index is not None and index.in_numbers is not None:
                yield from self._indexed(node, index, rows)
            else:
                first = max(first or 0, _first_rows(node, position, len(rows)))
        if first is not None:
            yield Taken(variable, rows[:first])

    def _indexed(self, node: Apply, index: RowIndex, rows: range) -> Iterator[Taken]:
        result, places = node.outputs[0], index.in_numbers
        if isinstance(places, np.ndarray):
            yield Taken(result, [rows[place] for place in places.tolist()])
            return
        chosen = rows[places]
        if isinstance(chosen, range) and not index.rest:
            yield from self._taken(result, chosen)
        else:
            yield Taken(result, chosen, index.rest)


def _first_rows(node: Apply, position: int, length: int) -> int:
    """How many first rows a reader takes: of a sequence, a loop takes as many as it has steps."""
    steps = sequence_steps(node, position)
    if steps is None or not steps.is_constant or steps.constant > length:
        return length
    return max(steps.constant, 1)


def _index(rows: Rows, first: int, length: int, *, from_end: bool) -> Any:
    """The plainest index of ``rows`` in a buffer whose ``length`` rows start at row ``first``."""
    back = -first - length if from_end else -first
    if isinstance(rows, int):
        return rows + back
    if isinstance(rows, list):
        return pt.constant(np.asarray(rows, dtype="int64") + back)
    if not rows:
        return slice(0, 0)
    start, end = rows[0], rows[-1]
    # One row is taken forwards: PyTensor misreads a reversed slice of one row.
    if len(rows) == 1 or rows.step > 0:
        step = None if len(rows) == 1 or rows.step == 1 else rows.step
        stop = end + 1
        begin = None if start == first and not from_end else start + back
        return slice(begin, None if stop >= first + length else stop + back, step)
    begin = None if start == first + length - 1 else start + back
    # A stop before row 0 would be -1, which is the last row; counted from the end it is not.
    return slice(begin, end - 1 + back if from_end or end > first else None, rows.step)
