"""Finds the steps of a loop's output without the initial rows, and the readers of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytensor.graph.basic import Apply

from scanopt_cli.analysis.accesses.reads import Clients, is_strip, rows_alone
from scanopt_cli.ir.scan_view import ScanView, Slot


def stripped(view: ScanView, slot: Slot, clients: Clients) -> Any:
    """Return the slice of the output of ``slot`` that strips off the initial rows.

    ``None`` if there is no such slice, or if ``slot`` has no initial rows.
    """
    if slot.outer_output is None or not slot.n_initial:
        return None
    for node, position in clients(slot.outer_output):
        index = rows_alone(node, view.batch_ndim) if position == 0 else None
        if isinstance(index, slice) and is_strip(index, slot.n_initial):
            return node.outputs[0]
    return None


def readers_of(view: ScanView, slot: Slot, clients: Clients) -> Iterator[tuple[Apply, int, int]]:
    """Yield each reader of the output of ``slot`` or of its steps, and the reader's input.

    The third is the number of initial rows in the variable that it reads.
    """
    strip = stripped(view, slot, clients)
    for source, start in ((slot.outer_output, slot.n_initial), (strip, 0)):
        for node, position in () if source is None else clients(source):
            if strip is None or strip not in node.outputs:
                yield node, position, start
