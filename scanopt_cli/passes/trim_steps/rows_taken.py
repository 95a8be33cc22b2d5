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

from scanopt_cli.analysis.accesses.accesses import sequence_steps
from scanopt_cli.analysis.accesses.indices import read_index
from scanopt_cli.analysis.accesses.row_sources import RowSource
from scanopt_cli.ir.indexing import taken
from scanopt_cli.ir.naming import Clients

type Rows = range | int | list[int]


@dataclass(frozen=True, slots=True)
class Taken:
    """``variable``, which takes ``rows`` of a source: a range, one row or a list of rows.

    ``rest`` are the indices of the axes after that of the rows.
    """

    variable: Variable
    source: RowSource
    rows: Rows
    rest: tuple[Any, ...] = ()

    @property
    def places(self) -> range | list[int]:
        """The rows as a sequence."""
        return [self.rows] if isinstance(self.rows, int) else self.rows

    @property
    def steps(self) -> tuple[int, int] | None:
        """The first and the last step whose row is taken, those before the first being negative.

        ``None`` if no row is taken.
        """
        places, n_initial = self.places, self.source.n_initial
        if not places:
            return None
        # A range is not walked through: it may be as long as a loop.
        few = (places[0], places[-1]) if isinstance(places, range) else places
        return min(few) - n_initial, max(few) - n_initial

    def of(self, buffer: Any, length: int, *, from_end: bool) -> Variable:
        """Return the same rows of ``buffer``, which has ``length`` of them."""
        index = _index(self.rows, length, from_end=from_end)
        made = taken(buffer, self.source.axis, index, *self.rest)
        if made is not buffer:
            made.name = self.variable.name
        return made


def rows_taken(source: RowSource, steps: int, clients: Clients) -> Iterator[Taken]:
    """Yield what readers take of the rows of a loop of ``steps`` steps.

    For readers that are not an index or slice in numbers, it is the source itself. A `LookupError`
    is raised for a read that is out of bounds: the graph must keep that error.
    """
    for one in source.every(clients):
        yield from _taken(one, one.variable, range(steps + one.n_initial), clients)


def _taken(source: RowSource, variable: Variable, rows: range, clients: Clients) -> Iterator[Taken]:
    """Yield what readers take of ``variable``, which holds ``rows`` of the source."""
    first: int | None = None
    for node, position in clients(variable):
        if variable is source.variable and source.plainly_behind(node, position) is not None:
            continue
        index = read_index(node, source.axis) if position == 0 else None
        places = None if index is None else index.in_numbers
        if index is None or places is None:
            first = max(first or 0, _first_rows(node, variable, len(rows)))
            continue
        result = node.outputs[0]
        if isinstance(places, np.ndarray):
            yield Taken(result, source, [rows[place] for place in places.tolist()])
        elif isinstance(chosen := rows[places], range) and not index.rest:
            yield from _taken(source, result, chosen, clients)
        else:
            yield Taken(result, source, chosen, index.rest)
    if first is not None:
        yield Taken(variable, source, rows[:first])


def _first_rows(node: Apply, variable: Variable, length: int) -> int:
    """How many first rows a reader takes: of a sequence, a loop takes as many as it has steps."""
    steps = sequence_steps(node, variable)
    if steps is None or not steps.is_constant or steps.constant > length:
        return length
    return max(steps.constant, 1)


def _index(rows: Rows, length: int, *, from_end: bool) -> Any:
    """The plainest index of ``rows`` in a source that has ``length`` of them."""
    back = -length if from_end else 0
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
        begin = start + back if start or from_end else None
        return slice(begin, None if stop >= length else stop + back, step)
    begin = None if start == length - 1 else start + back
    # A stop before row 0 would be -1, which is the last row; counted from the end it is not.
    return slice(begin, end - 1 + back if from_end or end else None, rows.step)
