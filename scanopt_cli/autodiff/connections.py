"""Which outputs of a node are connected to which of its inputs, as `pytensor.grad` uses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import io_connection_pattern
from pytensor.scan.op import Scan

from scanopt_cli.ir.scan_view import ScanView, Slot, SlotKind, scan_op


def pattern(node: Apply) -> list[list[bool]]:
    """Return for each input (a row) to which outputs (columns) it is connected.

    This is the Op's own connection pattern, as `pytensor.grad` uses it, with one correction: the
    initial rows of a state are connected to its buffer, which begins with them, even if no step
    reads them (see `lost_starts`).
    """
    if hasattr(node.op, "connection_pattern"):
        known = _own_pattern(node)
        lost = [places for _, _, places in lost_starts(node, known)]
        if not lost:
            return known
        rows = [list(row) for row in known]
        for row, column in lost:
            rows[row][column] = True
        return rows
    return [[True] * len(node.outputs)] * len(node.inputs)


def lost_starts(
    node: Apply, known: Sequence[Sequence[bool]] | None = None
) -> Iterator[tuple[ScanView, Slot, tuple[int, int]]]:
    """Yield each state whose initial rows PyTensor takes to be disconnected from its buffer.

    This happens where no step computes the state from itself. Each item is the Scan's view, the
    state's slot, and the positions of its initial rows in the inputs and of its buffer in the
    outputs of ``node``. ``known`` is the Op's own connection pattern, if it is at hand.
    """
    if scan_op(node) is None:
        return
    if known is None:
        known = _own_pattern(node)
    view = ScanView.of(node)
    for slot in view.of_kind(SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.MIT_MOT):
        assert slot.outer_output is not None
        row, column = 1 + view.slots.index(slot), node.outputs.index(slot.outer_output)
        if not known[row][column]:
            yield view, slot, (row, column)


def _own_pattern(node: Apply) -> list[list[bool]]:
    _connect(node)
    known: list[list[bool]] = node.op.connection_pattern(node)
    return known


def _connect(node: Apply) -> None:
    """Compute the connection pattern of a Scan, and of those in its body, where PyTensor keeps it.

    PyTensor's own transitive closure takes time by the fourth power of the number of outputs:
    minutes for 400 states. This is Warshall's algorithm, with a row of bits at a time.
    """
    op = node.op
    if not isinstance(op, Scan) or hasattr(node.tag, "connection_pattern"):
        return
    for inner in op.fgraph.apply_nodes:
        _connect(inner)
    inner_inputs, inner_outputs = op.fgraph.inputs, op.fgraph.outputs
    within = np.zeros((len(inner_inputs), len(inner_outputs)), bool)
    within[:] = io_connection_pattern(inner_inputs, inner_outputs) or False
    row_of = {variable: row for row, variable in enumerate(inner_inputs)}
    column_of = {variable: column for column, variable in enumerate(inner_outputs)}
    view = ScanView.of(node)
    reached = np.stack(
        [
            within[:, [column_of[variable] for variable in slot.inner_outputs]].any(axis=1)
            for slot in view.outputs()
        ],
        axis=1,
    )
    connected = np.zeros((len(node.inputs), len(node.outputs)), bool)
    for row, slot in enumerate(view.slots, start=1):
        connected[row] = reached[[row_of[variable] for variable in slot.inner_inputs]].any(axis=0)
    # A state that reaches an output hands on all that reaches the state.
    for column, state in enumerate(view.outputs()):
        through = connected[:, column]
        connected[through] |= connected[1 + view.slots.index(state)]
    node.tag.connection_pattern = connected.tolist()
