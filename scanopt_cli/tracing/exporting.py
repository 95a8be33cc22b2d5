"""The trace of one loop as a file: CSV for tables, NPZ for arrays."""

from __future__ import annotations

import csv
import re
from io import StringIO

import numpy as np

from scanopt_cli.errors import ScanoptError
from scanopt_cli.text import few, printable
from scanopt_cli.tracing.result import LoopTrace, SlotTrace, Trace
from scanopt_cli.tracing.values import npz

_LISTED = 8
_PATH = re.compile(r"[\\/:]|\.\.")


def lone_loop(trace: Trace, *, where: str) -> LoopTrace:
    """Return the loop of a trace of one, for a file that holds no more.

    Raises
    ------
    ScanoptError
        If there are several; ``where`` names the option.
    """
    if len(trace.loops) != 1:
        names = few([loop.title for loop in trace.loops], _LISTED)
        raise ScanoptError(
            "a file holds one loop", where=where, hint=f"choose it by --loop: {names}"
        )
    return trace.loops[0]


def csv_bytes(loop: LoopTrace) -> bytes:
    """Return a row for each step, and a column for each number: ``h[0]``, ``h[1]``.

    What is the same in all steps is left out. Values whose shape changes are one cell each, a list.
    """
    columns = [column for one in (*loop.slots, *loop.nodes) for column in _columns(one)]
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", *(name for name, _ in columns)])
    for place, step in enumerate(loop.steps):
        writer.writerow([step, *(cells[place] for _, cells in columns)])
    return text.getvalue().encode()


def _columns(one: SlotTrace) -> list[tuple[str, list[str]]]:
    if one.is_constant:
        return []
    rows, shape = one.rows, one.shape
    if not shape:
        return [(one.name, [_cell(row) for row in rows])]
    return [
        (f"{one.name}[{','.join(map(str, place))}]", [_cell(row[place]) for row in rows])
        for place in np.ndindex(shape)
    ]


def _cell(value: np.ndarray) -> str:
    """Return a number so that it can be read back exactly, or a list of them."""
    return str(np.asarray(value).tolist())


def npz_bytes(loop: LoopTrace) -> bytes:
    """Return an array for each slot and node by its name, and the numbers of the steps as ``step``.

    Values whose shape changes are arrays of their own, ``h/0``, ``h/1``, by their step.
    """
    arrays: dict[str, np.ndarray] = {"step": np.asarray(loop.steps, dtype=np.int64)}

    def add(name: str, array: np.ndarray) -> None:
        number, free = 1, name
        while free in arrays:
            number += 1
            free = f"{name}#{number}"
        arrays[free] = array

    for one in (*loop.slots, *loop.nodes):
        # The author of a graph chooses names; those in an archive must not lead out of it.
        name = _PATH.sub("_", printable(one.name))
        if isinstance(one.values, np.ndarray):
            add(name, one.values)
        else:
            for step, row in zip(loop.steps, one.values, strict=True):
                add(f"{name}/{step}", row)
        if one.initial:
            add(f"{name}/initial", np.stack(one.initial))
    return npz(arrays)
