"""Chains of states, each of which takes the old value of the next: one state of a Scan, with taps.

A mit_sot of three rows is, in a TracedLoop, three states: ``a = b``, ``b = c``, ``c = f(a, b, c)``.
In step ``t`` they hold the rows ``t``, ``t + 1`` and ``t + 2`` of its buffer, so the traces of all,
and their last values, are rows of it::

    buffer      row 0   row 1   row 2   f in step 0   f in step 1  …
    trace of a  row 0   row 1   row 2   …
    trace of c                  row 2   f in step 0   f in step 1  …
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.tensor.basic import Join
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.accesses.indices import read_index
from scanopt_cli.ir.indexing import number
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.loop_to_scan.initial_buffers import first_rows_of, row_of


def chains_of(view: LoopView, reads: Mapping[Variable, int]) -> dict[Slot, list[Slot]]:
    """Return chains of states by the newest, which a step computes; the oldest first in each.

    ``reads`` says how often the body, or what it returns, reads a variable. The oldest state of a
    chain is read by the step itself, unless it was a tap before. All are of one type, and their
    initial values are of one shape: rows of one array, or of types that say all lengths. The newest
    may take the value of another state of the chain; of states that take each other's in a circle,
    it is the last.
    """
    states = view.of_kind(SlotKind.STATE)
    holder = {slot.inner_inputs[0]: slot for slot in states}
    older: dict[Slot, Slot] = {}
    # Of those that take one value, the first whose initial value is the row before, else the first.
    for is_wanted in (_is_row_before, _may_precede):
        for slot in states:
            newer = holder.get(slot.inner_outputs[0])
            if newer not in (None, slot) and newer not in older and is_wanted(slot, newer):
                older[newer] = slot
    precede = set(older.values())
    found: dict[Slot, list[Slot]] = {}
    taken: set[Slot] = set()
    # Those that precede others are at the end of a chain only if all are in a circle.
    for newest in (*(slot for slot in states if slot not in precede), *reversed(states)):
        if newest in taken:
            continue
        chain = [newest]
        taken.add(newest)
        while (before := older.get(chain[-1])) is not None and before not in taken:
            chain.append(before)
            taken.add(before)
        chain.reverse()
        while len(chain) > 1 and not (chain[0].former or reads[chain[0].inner_inputs[0]]):
            del chain[0]
        if len(chain) > 1:
            found[newest] = chain
    return found


def _is_row_before(older: Slot, newer: Slot) -> bool:
    """Whether the initial values of two states are successive rows of one array."""
    row, following = row_of(older.outer_input), row_of(newer.outer_input)
    return _are_alike(older, newer) and row is not None and following == (row[0], row[1] + 1)


def _may_precede(older: Slot, newer: Slot) -> bool:
    """Whether the initial values of two states can be stacked: their types say all lengths."""
    kind = newer.inner_inputs[0].type
    return _are_alike(older, newer) and isinstance(kind, TensorType) and None not in kind.shape


def _are_alike(older: Slot, newer: Slot) -> bool:
    """Whether two states are of one type, and were not two states of a Scan."""
    formers = {older.former, newer.former}
    is_one_type = older.inner_inputs[0].type == newer.inner_inputs[0].type
    return is_one_type and formers <= {None, SlotKind.MIT_SOT}


def readers_of(
    trace: Variable,
    before: int,
    buffer: Any,
    clients: Clients,
    is_start: Callable[[Variable], bool],
    *,
    has_row: bool = True,
) -> dict[Variable, Variable]:
    """Return what replaces readers of a trace whose rows are those of ``buffer`` but the first.

    The trace lacks the first ``before`` rows. The readers are those that leave out more rows from
    the start, read one row, or join the trace to those rows: ``is_start`` says whether a variable
    is these. ``has_row`` says that the trace has a row, so that its last row is the buffer's.
    """
    found: dict[Variable, Variable] = {}
    for node, position in clients(trace):
        index = read_index(node, 0) if position == 0 else None
        if index is not None and isinstance(node.op, Subtensor):
            value, rest = index.value, index.rest
            if index.reads_last:
                if not has_row:
                    continue
                found[node.outputs[0]] = buffer[(value, *rest)]
            elif index.row is not None and index.row >= 0:
                found[node.outputs[0]] = buffer[(index.row + before, *rest)]
            elif index.is_slice and value.stop is None and number(value.step, 1) == 1:
                start = number(value.start, 0)
                if start is not None and start > 0:
                    found[node.outputs[0]] = buffer[(slice(start + before, None), *rest)]
        elif position == 1 and node.op == Join(0) and len(node.inputs) == 2:
            found |= {node.outputs[0]: buffer} if is_start(node.inputs[0]) else {}
    return found


def starts_with(chain: list[Slot], rows: Variable) -> bool:
    """Whether ``rows`` are the initial values of all states of a chain but the newest."""
    source = first_rows_of(rows, len(chain) - 1)
    return [row_of(slot.outer_input) for slot in chain] == [
        (source, place) for place in range(len(chain))
    ]
