"""Where a loop was written, by what else the call of ``scan`` made: for loops that were rewritten.

``scan`` makes the buffer that a state starts in, and the read of a loop's output that it returns.
Both often outlive the rewrite that builds the loop anew, and say where the call was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.ir.written import Written, from_stacks, written, written_at

type Clients = Mapping[Variable, Collection[tuple[Any, int]]]
type Stack = tuple[tuple[Any, ...], ...]


def written_in(node: Apply, clients: Clients) -> Written | None:
    """Return where a loop of a graph was written; ``clients`` are the readers of its variables."""
    known = written(node.op)
    return known if known is not None else _of_call(node, clients) or written_at(node)


def _of_call(node: Apply, clients: Clients) -> Written | None:
    """Return where ``scan`` was called, if a buffer of the loop and a read of it have one stack.

    One alone does not tell: PyTensor merges equal buffers of different loops, and users read
    outputs, too. Stacks that are those of the loop itself may be of the rewrite that made it all.
    """
    if not is_loop(node):
        return None
    starts = (
        slot.outer_input
        for slot in view_of(node).of_kind(SlotKind.SIT_SOT, SlotKind.MIT_SOT)
        if _is_start(slot.outer_input)
    )
    reads = (
        reader.outputs[0]
        for output in node.outputs
        for reader, _ in clients.get(output, ())
        if isinstance(reader.op, Subtensor)
    )
    common = _stacks(starts) & _stacks(reads)
    found = {from_stacks([stack]) for stack in common - _stacks(node.outputs) or common} - {None}
    return found.pop() if len(found) == 1 else None


def _is_start(buffer: Variable) -> bool:
    """Whether a buffer is one as ``scan`` makes it: empty, but for what a state starts with."""
    made = buffer.owner
    if made is None or not (isinstance(made.op, IncSubtensor) and made.op.set_instead_of_inc):
        return False
    empty = made.inputs[0].owner
    return empty is not None and isinstance(empty.op, AllocEmpty)


def _stacks(variables: Iterable[Variable]) -> set[Stack]:
    traces = (getattr(variable.tag, "trace", None) for variable in variables)
    return {
        tuple(stack)
        for trace in traces
        if isinstance(trace, list)
        for stack in trace
        if isinstance(stack, list) and all(isinstance(frame, tuple) for frame in stack)
    }
