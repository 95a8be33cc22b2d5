"""P005: whole traces that are kept, where their ends are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from pytensor.graph.basic import Variable
from pytensor.scalar.basic import Second
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.accesses import Access, accesses_of_outputs
from scanopt_cli.analysis.accesses.indices import RowIndex
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot
from scanopt_cli.remarks import Code, Remark, Why
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.compiled_loops import rows_kept
from scanopt_cli.rules.finding_costs import memory
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity

_NORMALIZING = "guard-last-rows,normalize-reads,peel-first-step,trim-steps"
_LONG = 100
"""As many rows are worth a word; an unknown number is more."""
_REASONS: Mapping[Why, str] = {
    Why.LOOP_STOPS: "a condition ends the loop",
    Why.NO_STEPS: "there may be no step",
    Why.SEQUENCE_SHORT: "a sequence may be shorter than the loop",
    Why.STATE_UNTRACED: "the loop carries a state without a trace",
    Why.STEP_HOLDS_GRAPH: "a step has a loop or a graph inside",
    Why.STEP_LARGE: "a step is large",
    Why.STEPS_DIFFER_IN_BATCH: "the step count differs within the batch",
}


class WholeTraces(Rule):
    """The whole trace of a loop is kept, and only its ends are read.

    PyTensor keeps the last rows alone where it sees that only these are read, as by ``ys[-1]``. It
    does not see it through a reversal, an index that is the number of steps, or a row of the start
    beside one of the end, and allocates and writes a row for each step::

        ys = scan(step, outputs_info=[x], n_steps=n)
        ys[::-1][:3], ys[n - 1]  # all n rows are kept
        ys[-3:], ys[-1]  # none but the last three are

    Write the index from the end; the fix does. Where it may not, the finding has no fix, and says
    why. Mend it last: a loop whose trace was cut must not be differentiated.

    That PyTensor keeps at least twice as many rows as the fix leaves is tried out, on a copy that
    it rewrites as for Numba (if that takes no more than five seconds). Loops that keep less than a
    hundred rows are no finding.
    """

    code: ClassVar[str] = "P005"
    name: ClassVar[str] = "whole-traces"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix | None] = Fix(f"{_NORMALIZING},save-mem")

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop of which PyTensor keeps more rows than it has to."""
        assert self.fix is not None
        if not any(map(_indirect, context.scans)):
            return
        by_loop: dict[str, list[Remark]] = {}
        for remark in context.remarks(self.fix.passes):
            if remark.code is Code.BUFFER_SHORTENED or _reason(remark) is not None:
                by_loop.setdefault(remark.scan, []).append(remark)
        likely = [
            (loop, slots)
            for loop in context.scans
            if (slots := _indirect(loop, by_loop.get(loop.title, ())))
        ]
        if not likely or (before := context.compiled()) is None:
            return
        fixes = [Fix(_NORMALIZING), self.fix]
        after = [context.compiled(each.passes) or before for each in fixes]
        for loop, slots in likely:
            text = f"every step of {loop.quoted(slots)} is kept, and only the ends are read"
            kept, *needed = (rows_kept(found.get(loop.title, ())) for found in (before, *after))
            if kept is None or kept < _LONG:
                continue
            cost = memory(loop, slots)
            mended = [
                fix
                for fix, left in zip(fixes, needed, strict=True)
                if left is not None and 2 * left <= kept
            ]
            reasons = [reason for r in by_loop[loop.title] if (reason := _reason(r)) is not None]
            if mended:
                yield self.at(context, loop, text, *slots, cost=cost, fix=mended[0])
            elif reasons:
                text = f"{text}: {', '.join(dict.fromkeys(reasons))}"
                yield self.at(context, loop, text, *slots, cost=cost, fix=None)


def _reason(remark: Remark) -> str | None:
    """Return why the whole trace must be kept, for a remark that says that."""
    is_about_it = remark.code in (Code.BUFFER_KEPT, Code.FIRST_ROW_KEPT)
    if not is_about_it or remark.reason is None:
        return None
    return _REASONS.get(Why(remark.reason.code))


def _indirect(loop: NamedLoop, remarks: Sequence[Remark] | None = None) -> list[Slot]:
    """Return the slots of which PyTensor may not see that their ends alone are read.

    If there are ``remarks``, those of which they tell.
    """
    assert isinstance(loop.view, ScanView)
    named = None if remarks is None else {name for remark in remarks for name in remark.slots}
    found = accesses_of_outputs(loop.view, loop.clients)
    return [
        slot
        for slot, each in found.items()
        if (named is None or loop.names[slot] in named)
        and all(map(_may_be_the_end, each))
        and not all(_is_direct(access, loop.clients) for access in each)
    ]


def _may_be_the_end(access: Access) -> bool:
    """Whether a reader takes rows by an index, not all rows nor all up to some."""
    if access.index is None:
        return _reads_shape(access) or isinstance(access.node.op, Join)
    rows = access.index.value
    is_from_the_start = access.index.is_slice and rows.start is rows.step is None
    return not is_from_the_start or access.is_reversed


def _reads_shape(access: Access) -> bool:
    """Whether the shape alone is read, as by what is filled with zeros."""
    op = access.node.op
    is_filled = isinstance(op, Elemwise) and isinstance(op.scalar_op, Second)
    return isinstance(op, Shape | Shape_i) or (is_filled and access.position == 0)


def _is_direct(access: Access, clients: Clients) -> bool:
    """Whether a reader takes a row, or the last rows, by a number from the end: ``[-3:]``."""
    if _reads_shape(access):
        return True
    if not access.is_plain or not _is_from_the_end(access.index):
        return False
    is_read_again = any(isinstance(n.op, Subtensor) for n, _ in clients(access.result))
    return not (is_read_again and access.index is not None and access.index.is_slice)


def _is_from_the_end(index: RowIndex | None) -> bool:
    """Whether rows are taken by a number from the end, or from there on."""
    rows = None if index is None else index.value
    if isinstance(rows, slice):
        rows = rows.start if rows.stop is rows.step is None else None
    if not isinstance(rows, Variable):
        return False
    row = Lengths().value_of(rows)
    return row.is_constant and row.constant < 0
