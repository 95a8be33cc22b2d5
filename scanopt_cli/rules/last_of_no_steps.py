"""C002: the last row of a loop that may have no steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from scanopt_cli.remarks import Code, Remark, Why
from scanopt_cli.rules.rule_contract import Fix, PassRule, Severity, named


class LastOfNoSteps(PassRule):
    """The last row is read of a loop that may have no steps, where PyTensor returns another value.

    Of a loop of no steps, ``ys[-1]`` is an IndexError. When PyTensor compiles, it lets a state keep
    one row, and returns the initial value; of a gradient, zero::

        ys = scan(step, outputs_info=[x], n_steps=n)
        pytensor.function([x, n], ys[-1])(1.0, 0)  # 1.0, not an IndexError

    The fix writes a check beside the row. A constant ``n_steps``, or sequences of static length,
    make it needless.
    """

    code: ClassVar[str] = "C002"
    name: ClassVar[str] = "last-of-no-steps"
    severity: ClassVar[Severity] = Severity.NOTE
    fix: ClassVar[Fix] = Fix("guard-last-rows")
    costs_buffers: ClassVar[bool] = False
    codes: ClassVar[frozenset[str]] = frozenset({Code.LAST_GUARDED, Code.WRITE_GUARDED})

    def text(self, remarks: Sequence[Remark]) -> str:
        """Return the text of the finding."""
        read = [remark for remark in remarks if remark.slots]
        what = f"the last row of {named(read)} is read" if read else "a last row is written"
        return f"{what}, and there may be no step: compiled, that raises no IndexError"

    def doubt(self, remark: Remark) -> str | None:
        """Return the text for a last row of a buffer that may not hold every step."""
        if remark.code is not Code.LAST_UNGUARDED or remark.reason is None:
            return None
        if remark.reason.code != Why.BUFFERS_NOT_WHOLE:
            return None
        return (
            f"the last row of {named([remark])} is read: if it keeps every step, and there is "
            "none, compiled that raises no IndexError"
        )
