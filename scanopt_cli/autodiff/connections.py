"""Which outputs of a node are connected to which of its inputs, as `pytensor.grad` uses it."""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.graph.basic import Apply

from scanopt_cli.ir.connection_patterns import Pattern, connection_pattern
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.slots import Slot, SlotKind


def pattern(node: Apply) -> Pattern:
    """Return for each input (a row) to which outputs (columns) it is connected.

    This is the Op's own connection pattern, as `pytensor.grad` uses it, with one correction: the
    initial rows of a state are connected to its buffer, which begins with them, even if no step
    reads them (see `disconnected_rows`).
    """
    rows = [list(row) for row in connection_pattern(node)]
    for _, _, (row, column) in disconnected_rows(node):
        rows[row][column] = True
    return rows


def disconnected_rows(node: Apply) -> Iterator[tuple[ScanView, Slot, tuple[int, int]]]:
    """Yield each state whose initial rows PyTensor takes to be disconnected from its buffer.

    This happens where no step computes the state from itself. Each item is the Scan's view, the
    state's slot, and the positions of its initial rows in the inputs and of its buffer in the
    outputs of ``node``.
    """
    if scan_op(node) is None:
        return
    known, view = connection_pattern(node), ScanView.of(node)
    for slot in view.of_kind(SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.MIT_MOT):
        assert slot.outer_output is not None
        row, column = 1 + view.slots.index(slot), node.outputs.index(slot.outer_output)
        if not known[row][column]:
            yield view, slot, (row, column)
