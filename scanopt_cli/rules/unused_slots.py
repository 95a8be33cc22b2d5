"""P001: what a loop carries, keeps or reads for nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from scanopt_cli.remarks import Code, Remark
from scanopt_cli.rules.rule_contract import Fix, PassRule, Severity, named


class UnusedSlots(PassRule):
    """A state, a trace, a sequence or a non-sequence has no reader.

    Each step computes it, and its buffer is allocated, for nothing. Gradients of loops are full of
    these::

        ys, logs = scan(lambda y: [y * w, pt.log(y)], outputs_info=[x, None], n_steps=n)
        pytensor.function([x, w, n], ys[-1])  # nobody reads logs

    Leave it out of the step; the fix does.
    """

    code: ClassVar[str] = "P001"
    name: ClassVar[str] = "unused-slots"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix] = Fix("remove-unused")
    codes: ClassVar[frozenset[str]] = frozenset({Code.SLOT_REMOVED})

    def text(self, remarks: Sequence[Remark]) -> str:
        """Return the text of the finding."""
        return f"nobody reads {named(remarks, with_kinds=True)}"
