"""P006: states that are equal, and loops that could be one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pytensor.graph.traversal import ancestors

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.slots import Slot
from scanopt_cli.remarks import Code, Remark, Why
from scanopt_cli.rules.finding_costs import memory, overhead, work
from scanopt_cli.rules.rule_contract import Fix, PassRule, Severity, listed, named


class EqualLoops(PassRule):
    """States are provably equal, inputs are given twice, or loops could be one loop.

    Equal states are computed and kept twice; loops over the same steps read their sequences twice,
    and each has its own overhead a step::

        a = scan(f, sequences=[xs])
        b = scan(g, sequences=[xs])

    Merge them into one ``scan`` of a step that returns both; the fix does.
    """

    code: ClassVar[str] = "P006"
    name: ClassVar[str] = "equal-loops"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix] = Fix("merge-scans,merge-duplicates,merge-states")
    codes: ClassVar[frozenset[str]] = frozenset(
        {Code.SCANS_MERGED, Code.SLOTS_MERGED, Code.TRACE_READ_FROM_STATE}
    )

    def cost(self, loop: NamedLoop, slots: Sequence[Slot]) -> str | None:
        """Return the buffers of equal states and what a step computes for them, or a step's own."""
        if not slots:
            return overhead(loop)
        outputs = [slot.inner_outputs[0] for slot in slots if slot.inner_outputs]
        kept = [v for v in loop.view.inner_outputs() if v not in outputs]
        needed = {v.owner for v in ancestors(kept)}
        nodes = [n for n in loop.view.op.fgraph.toposort() if n not in needed]
        parts = [memory(loop, slots), work(loop, nodes)]
        return ", ".join(filter(None, parts)) or None

    def text(self, remarks: Sequence[Remark]) -> str:
        """Return the text of the finding."""
        others = [other for remark in remarks for other in listed(remark.details.get("others"))]
        if others:
            return f"could be one loop with {', '.join(f'`{other}`' for other in others)}"
        traces = [r for r in remarks if r.code is Code.TRACE_READ_FROM_STATE]
        equal = [r for r in remarks if r.code is Code.SLOTS_MERGED]
        parts = [f"{named([r], with_kinds=True)} equals `{r.details['into']}`" for r in equal]
        parts += [f"the trace {named([r])} is that of `{r.details['state']}`" for r in traces]
        return ", ".join(parts)

    def doubt(self, remark: Remark) -> str | None:
        """Return the text for loops of which it is not known that they can be one."""
        if remark.code is not Code.SCANS_NOT_MERGED or remark.reason is None:
            return None
        could = f"could be one loop with `{remark.details['other']}`"
        match remark.reason.code:
            case Why.BATCHES_DIFFER:
                return f"{could}, if their batches have one shape"
            case Why.BUFFERS_UNCLEAR:
                return f"{could}, if their buffers hold every step"
        return None
