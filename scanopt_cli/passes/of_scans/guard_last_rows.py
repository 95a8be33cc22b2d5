"""Read the last row of a loop from its buffer, behind a check that the loop ran a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.analysis.accesses.accesses import Access, accesses_of_outputs
from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.affine import ZERO, as_affine
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.count_variables import scalar_steps
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import along
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.ir.step_check import is_checked, is_step_check, with_step_check
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass, not_whole
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class GuardLastRows(ScanPass):
    """Write the check beside the last row of a loop that the loop ran a step.

    ``xs[-1]`` of no steps raises an IndexError. PyTensor loses the error when it compiles: it
    merges ``buffer[1:][-1]`` into ``buffer[-1]``, which is the initial row. With the check, the row
    may be read from a shorter buffer or from the last value, and no row of another step is kept for
    the sake of the error.

    Legal cases, for a loop of ``n`` steps that may be 0:

    1. ``buffer[L:][-1]``, where ``buffer`` has ``L`` initial rows, becomes ``buffer[-1]`` behind a
       check that ``n`` is positive; and likewise ``buffer[L:][n-1]`` and ``buffer[L:][::-1][0]``.
    2. ``ys[-1]`` of an output without initial rows gets the check too, since not every backend
       checks an index.
    3. ``buffer[L:][-1:]`` becomes ``buffer[-1]`` with the axis of rows put in, as one row or none.
    4. A value written into the first or the last row of what the loop reads, as the gradient of
       ``xs[-1]`` is, gets a check that there is such a row.

    Preconditions: the buffer provably holds every step; the number of steps is not provably
    positive, and is the same for all entries of a batch. Of a loop with a stop condition, ``n`` is
    the most steps that it may run: it runs one before it asks. The row is not for one branch of an
    IfElse alone: Numba computes both branches, so the check would raise in the one that is not
    taken (``ifelse(n > 0, xs[-1], x0)``).

    Without ``check``, as for JAX, which cannot raise errors, case 1 only reads ``buffer[-1]``.

    Out of scope: rows counted from the first (``xs[3]``), and slices of more rows, which raise no
    error. And TracedLoops: compiled, they lose the error too, but `trace-to-last`, which reads such
    rows from last values, writes the check of cases 1 and 2 itself. What a Scan reads is guarded by
    case 4 before it becomes a TracedLoop.
    """

    check: bool = True
    """whether to write the checks; JAX cannot raise errors"""

    name: ClassVar[str] = "guard-last-rows"

    def adapted(self, target: CompilationTarget) -> Self:
        """Write no check that cannot raise."""
        return replace(self, check=self.check and target.raises)

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for what reads or writes last rows."""
        lengths = Lengths(view.n_steps)
        found: dict[Variable, Variable] = {}
        steps = None if lengths.runs() else scalar_steps(view)
        if steps is not None:
            found = self._reads(view, steps, lengths, context)
        if self.check:
            found |= self._writes(view, context)
        return found

    def _reads(
        self, view: ScanView, steps: Any, lengths: Lengths, context: PassContext
    ) -> dict[Variable, Variable]:
        """Return replacements for reads of the last row of a loop that may run no step."""
        found: dict[Variable, Variable] = {}
        names = context.names(view)
        for slot, accesses in accesses_of_outputs(view, context.clients).items():
            reads = [
                access
                for access in accesses
                if is_last_of_steps(access, view, lengths)
                and not is_checked(access.result, context.clients)
                and not context.is_conditional(access.node)
            ]
            if not self.check:
                reads = [access for access in reads if access.path]
            if not reads:
                continue
            if not is_whole(view, slot, lengths):
                context.missed(view, Code.LAST_UNGUARDED, not_whole([slot]), names[slot])
                continue
            for access in reads:
                assert access.index is not None
                buffer: Any = slot.output
                axis = view.batch_ndim
                columns = access.path[0].rest if access.path else ()
                row = buffer[along(axis, -1, *(columns or access.index.rest))]
                if columns and access.index.rest:
                    row = row[along(axis, *access.index.rest)]
                if access.index.is_slice:
                    row = pt.expand_dims(row, axis)[along(axis, slice(None, steps))]
                elif self.check:
                    row = with_step_check(row, steps)
                found[access.result] = row
            context.passed(view, Code.LAST_GUARDED, names[slot], steps=str(lengths.steps))
        return found

    def _writes(self, view: ScanView, context: PassContext) -> dict[Variable, Variable]:
        """Return replacements for writes into the last row of what a loop reads."""
        found: dict[Variable, Variable] = {}
        lengths = Lengths()
        for slot in view.slots:
            if slot.kind in (SlotKind.NON_SEQ, SlotKind.NIT_SOT, SlotKind.UNTRACED):
                continue
            for node in _end_rows_written(slot.outer_input, lengths):
                target: Any = node.inputs[0]
                length = lengths.length_of(target)
                if node.outputs[0] in found or lengths.provably_le(1, length):
                    continue
                if context.is_conditional(node):
                    continue
                checked = with_step_check(node.inputs[1], target.shape[0])
                found[node.outputs[0]] = node.clone_with_new_inputs(
                    [target, checked, *node.inputs[2:]]
                ).outputs[0]
                context.passed(view, Code.WRITE_GUARDED, steps=str(length))
        return found


def is_last_of_steps(access: Access, view: ScanView, lengths: Lengths) -> bool:
    """Whether an access reads one row, the last of the steps, if there is a step."""
    index = access.index
    if index is None or access.n_initial:
        return False
    if index.is_slice:
        return index.reads_last and len(access.path) == 1 and not access.is_reversed
    if access.is_reversed:
        return index.row == 0
    if index.row == -1:
        return True
    is_number = isinstance(index.value, Variable) and not index.value.type.ndim
    return is_number and not view.is_while and lengths.value_of(index.value) == lengths.steps - 1


def _end_rows_written(buffer: Variable, lengths: Lengths) -> Iterator[Apply]:
    """Yield the nodes by which ``buffer`` is written in its first or last row, without a check."""
    waiting, seen = [buffer], set()
    while waiting:
        node = waiting.pop().owner
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node.op, IncSubtensor):
            waiting += node.inputs[:2]
            index = rows_index(node, 0)
            if index is None or isinstance(index, slice) or is_step_check(node.inputs[1].owner):
                continue
            row = lengths.value_of(index)
            if row in (as_affine(-1), ZERO, lengths.length_of(node.inputs[0]) - 1):
                yield node
        elif isinstance(node.op, Subtensor | DimShuffle):
            waiting += node.inputs[:1]
