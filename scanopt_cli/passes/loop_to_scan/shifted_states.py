"""Chains of states, each of which takes the old value of the next: one state of a Scan, with taps.

A mit_sot of three rows is, in a TracedLoop, three states: ``a = b``, ``b = c``, ``c = f(a, b, c)``.
In step ``t`` they hold the rows ``t``, ``t + 1`` and ``t + 2`` of its buffer, so the traces of all,
and their last values, are rows of it::

    buffer      row 0   row 1   row 2   f in step 0   f in step 1  …
    trace of a  row 0   row 1   row 2   …
    trace of c                  row 2   f in step 0   f in step 1  …
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import Join
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.accesses.indices import read_index, rows_index
from scanopt_cli.ir.indexing import number
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.loop_to_scan.initial_buffers import row_of


def chains_of(view: LoopView, reads: Mapping[Variable, int]) -> dict[Slot, list[Slot]]:
    """Return chains of states by the newest, which a step computes; the oldest first in each.

    ``reads`` says how often the body, or what it returns, reads a variable. The oldest state of a
    chain is read by the step itself, all are of one type, and their initial values are of one
    shape: rows of one array, or of types that say all lengths.
    """
    states = view.of_kind(SlotKind.STATE)
    holder = {slot.inner_inputs[0]: slot for slot in states}
    older = {}
    for slot in reversed(states):  # of those that take one value, the first
        newer = holder.get(slot.inner_outputs[0])
        if newer is not None:
            older[newer] = slot
    taken = Counter(slot.inner_outputs[0] for slot in states)
    found = {}
    for newest in states:
        if newest.inner_outputs[0] in holder:
            continue
        chain = [newest]
        while (before := older.get(chain[0])) is not None and _may_precede(before, chain[0]):
            chain.insert(0, before)
        while reads[chain[0].inner_inputs[0]] <= taken[chain[0].inner_inputs[0]]:
            if len(chain) == 1:
                break
            del chain[0]
        if len(chain) > 1:
            found[newest] = chain
    return found


def _may_precede(older: Slot, newer: Slot) -> bool:
    """Whether the initial values of two states may be rows of one buffer."""
    kind = newer.inner_inputs[0].type
    if older.inner_inputs[0].type != kind or not isinstance(kind, TensorType):
        return False
    if None not in kind.shape:
        return True
    row, following = row_of(older.outer_input), row_of(newer.outer_input)
    return row is not None and following == (row[0], row[1] + 1)


def readers_of(chain: list[Slot], buffer: Any, clients: Clients) -> dict[Variable, Variable]:
    """Return what replaces readers of the trace of the newest state of a chain, given the buffer.

    They are those that leave out rows from the start, read the last row, or join the trace to the
    initial rows of the others.
    """
    before = len(chain) - 1
    found: dict[Variable, Variable] = {}
    for node, position in clients(chain[-1].output):
        index = read_index(node, 0) if position == 0 else None
        if index is not None and isinstance(node.op, Subtensor):
            value, rest = index.value, index.rest
            if index.reads_last or index.row == -1:
                found[node.outputs[0]] = buffer[(value, *rest)]
            elif index.row is not None and index.row >= 0:
                found[node.outputs[0]] = buffer[(index.row + before, *rest)]
            elif index.is_slice and value.stop is None and number(value.step, 1) == 1:
                start = number(value.start, 0)
                if start is not None and start > 0:
                    found[node.outputs[0]] = buffer[(slice(start + before, None), *rest)]
        elif position == 1 and _joins_initial_rows(node, chain):
            found[node.outputs[0]] = buffer
    return found


def _joins_initial_rows(node: Apply, chain: list[Slot]) -> bool:
    """Whether a node joins the initial rows of all but the newest state to that one's trace."""
    if not isinstance(node.op, Join) or node.op.axis != 0 or len(node.inputs) != 2:
        return False
    start = node.inputs[0].owner
    index = None if start is None or not isinstance(start.op, Subtensor) else rows_index(start, 0)
    if not isinstance(index, slice) or number(index.stop) != len(chain) - 1:
        return False
    is_plain = number(index.start, 0) == 0 and number(index.step, 1) == 1
    rows = [row_of(slot.outer_input) for slot in chain]
    return is_plain and rows == [(start.inputs[0], place) for place in range(len(chain))]
