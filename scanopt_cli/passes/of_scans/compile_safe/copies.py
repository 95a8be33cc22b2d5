"""Copies that hide buffers and outputs from PyTensor's trimming and merging of loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytensor.tensor as pt
from pytensor.compile.ops import DeepCopyOp, deep_copy_op
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import Output
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor

from scanopt_cli.analysis.accesses.indices import RowIndex, read_index
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.copies import number_of_copy, numbered_copy
from scanopt_cli.ir.indexing import number
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.slots import STATES, TRACED, Slot, SlotKind
from scanopt_cli.passes.of_scans.save_mem.trimmed_reads import is_unsafe_reader
from scanopt_cli.pipeline.contract import PassContext, Rewrite
from scanopt_cli.remarks import Code


def copy_buffers(context: PassContext) -> Iterator[Rewrite]:
    """Give states whose initial buffers may become equal a different copy each.

    PyTensor compares the buffers of mit_sots, and of mit_mots, of all loops that it merges.
    """
    taken: dict[object, _Numbers] = {}
    for view in _loops(context):
        copied = []
        for slot in view.of_kind(SlotKind.MIT_SOT, SlotKind.MIT_MOT):
            number, buffer = number_of_copy(slot.outer_input)
            origin = _origin(buffer)
            # Different inputs of the graph stay different, and so do different constants.
            row: Any = slot.inner_inputs[0].type
            of_origin = None if origin is None else context.same(origin)
            key = (slot.kind, slot.taps, row.dtype, row.ndim, of_origin)
            wanted = taken.setdefault(key, _Numbers()).free(number)
            if wanted > number:
                if all(isinstance(root, Constant) for root in graph_inputs([buffer])):
                    buffer = _unfolded(buffer)
                slot.outer_input = numbered_copy(buffer, wanted)
                copied.append(slot)
        if copied:
            context.passed(view, Code.BUFFERS_COPIED, states=len(copied))
            yield Rewrite(view.rebuild())


class _Numbers:
    """Numbers of copies, each of which is given once."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._next = 0

    def free(self, least: int) -> int:
        """Return the first number from ``least`` on that was not given before."""
        number = max(least, self._next) if least in self._taken else least
        while number in self._taken:
            number += 1
        self._taken.add(number)
        while self._next in self._taken:
            self._next += 1
        return number


def _origin(buffer: Any) -> Variable | None:
    """Return the input or constant whose rows are a buffer's initial rows, ``None`` if none."""
    node = buffer.owner
    if node is not None and isinstance(node.op, IncSubtensor) and node.op.set_instead_of_inc:
        buffer = node.inputs[1]
    return buffer if buffer.owner is None else None


def _unfolded(buffer: Any) -> Variable:
    """Return ``buffer`` written in two parts into an empty array, which PyTensor does not fold."""
    empty = pt.empty_like(buffer)
    for rows in (slice(1), slice(1, None)):
        empty = pt.set_subtensor(empty[rows], buffer[rows])
    return cast(Variable, empty)


def copy_rows(context: PassContext) -> Iterator[Rewrite]:
    """Make readers that PyTensor may miscompile read a copy."""
    indices = _Indices(context)
    for view in _loops(context):
        names, lengths = context.names(view), Lengths(view.n_steps)
        for slot in view.of_kind(*TRACED, SlotKind.MIT_MOT):
            readers = _miscompiled(view, slot, context, indices, lengths)
            if readers:
                context.passed(view, Code.READERS_COPIED, names[slot])
                copied = deep_copy_op.make_node(slot.output).outputs[0]
                yield Rewrite(inputs=[(node, position, copied) for node, position in readers])


class _Indices:
    """Finds the variables that PyTensor may index, by moving indices up through other nodes.

    It moves them through most nodes that are not loops. The outputs of a graph that will be inlined
    may be indexed in the graph around it.
    """

    def __init__(self, context: PassContext) -> None:
        self._is_inlined = context.is_inlined
        self._indexed: set[Variable] = set(context.fgraph.outputs if context.is_inlined else ())
        for node in reversed(context.fgraph.toposort()):
            is_index = isinstance(node.op, Subtensor | AdvancedSubtensor)
            if is_index or self.may_reach(node):
                self._indexed.update(node.inputs[:1] if is_index else node.inputs)

    def may_reach(self, node: Any) -> bool:
        """Whether an index of an output of ``node`` may become an index of its inputs."""
        if isinstance(node.op, Output):
            return self._is_inlined
        if isinstance(node.op, DeepCopyOp | Shape | Shape_i):
            return False
        if scan_op(node) is not None and ScanView.of(node).of_kind(*STATES):
            return False  # PyTensor cannot replace it by an expression
        return any(v in self._indexed and getattr(v.type, "ndim", 0) for v in node.outputs)


def _loops(context: PassContext) -> Iterator[ScanView]:
    return (view for view in context.scans() if view.node.op is view.op)


def _miscompiled(
    view: ScanView, slot: Slot, context: PassContext, indices: _Indices, lengths: Lengths
) -> list[tuple[Any, int]]:
    """Return the readers of a slot's output, with positions, that PyTensor may miscompile."""
    is_plain = slot.kind in TRACED and _keeps_all_rows(view, slot, context, lengths)

    def is_read_wrongly(node: Any, position: int) -> bool:
        if not isinstance(node.op, Subtensor) or position:
            return indices.may_reach(node)
        if slot.kind is SlotKind.MIT_MOT:
            return True
        reads = list(_reads(node, slot, context, indices))
        if is_plain:
            return not all(_is_understood(slot, read, lengths) for read in reads)
        is_moved = any(read.index is None and read.is_indexed for read in reads)
        return is_moved or is_unsafe_reader(slot, context.clients, lengths, node)

    return [
        (node, position)
        for node, position in context.clients(slot.outer_output)
        if is_read_wrongly(node, position)
    ]


def _keeps_all_rows(view: ScanView, slot: Slot, context: PassContext, lengths: Lengths) -> bool:
    """Whether PyTensor is right to treat a buffer as one that holds every step."""
    if view.is_while or not is_whole(view, slot, lengths):
        return False
    # PyTensor compares the length of a trace with the trip count as variables.
    is_trace = slot.kind is SlotKind.NIT_SOT
    return not is_trace or context.same(slot.outer_input) == context.same(view.n_steps)


@dataclass(frozen=True, slots=True)
class _Read:
    """What a reader reads: ``index`` of all rows, or of the rows behind the initial ones.

    The latter if ``is_stripped``. If ``is_indexed``, PyTensor may index the result once more.
    """

    index: RowIndex | None
    is_stripped: bool
    is_indexed: bool


def _reads(node: Apply, slot: Slot, context: PassContext, indices: _Indices) -> Iterator[_Read]:
    """Yield what ``node`` reads; if it only strips the initial rows, what its readers read."""
    index = read_index(node, 0)
    if index is None or not index.strips(slot.n_initial):
        yield _Read(index, is_stripped=not slot.n_initial, is_indexed=indices.may_reach(node))
        return
    for reader, position in context.clients(node.outputs[0]):
        is_index = isinstance(reader.op, Subtensor) and not position
        inner = read_index(reader, 0) if is_index else None
        yield _Read(inner, is_stripped=True, is_indexed=indices.may_reach(reader))


def _is_understood(slot: Slot, read: _Read, lengths: Lengths) -> bool:
    """Whether PyTensor's trimming keeps the rows that are read, errors aside."""
    if read.index is not None and not read.index.is_slice:
        # For an initial row PyTensor may compute a negative trip count.
        return read.is_stripped or slot.n_initial < 2 or read.index.reads_last
    if read.is_indexed:
        return False
    if read.index is None:
        return True
    index = read.index.value
    step = number(index.step, 1)
    start, stop = number(index.start, 0), number(index.stop)
    if step is None or step < 0:
        return True
    if step > 1:
        return start is not None and start >= 0 and index.stop is None
    if start is not None and start < 0:
        if index.stop is None:
            # PyTensor counts the last rows of a state correctly, however few exist.
            return (slot.n_initial > 0 and read.is_stripped) or lengths.runs(-start)
        return stop is not None and stop < 0 and lengths.runs(-start)
    if index.stop is None:
        return True
    return start is not None and stop is not None and (stop >= 0 or lengths.runs(-stop))
