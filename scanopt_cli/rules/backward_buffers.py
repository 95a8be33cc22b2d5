"""P007: the mit_mots of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from scanopt_cli.remarks import Code, Remark, Why
from scanopt_cli.rules.rule_contract import Fix, PassRule, Severity, named
from scanopt_cli.text import plural


class BackwardBuffers(PassRule):
    """A gradient writes into a buffer of all steps (a mit_mot), where one state would do.

    PyTensor's pullback of a Scan adds cotangents up in a buffer with a row of each step. It cannot
    be trimmed, and no rewriter of PyTensor's works on it::

        pt.grad(scan(step, outputs_info=[x], n_steps=n)[-1], x)

    The fix makes an ordinary state of it.
    """

    code: ClassVar[str] = "P007"
    name: ClassVar[str] = "backward-buffers"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix] = Fix("remove-unused,clean-slices,mit-mot-to-sit-sot")
    codes: ClassVar[frozenset[str]] = frozenset({Code.MIT_MOT_REPLACED})

    def text(self, remarks: Sequence[Remark]) -> str:
        """Return the text of the finding."""
        return f"the gradient writes into a buffer of all steps: mit_mot {named(remarks)}"

    def doubt(self, remark: Remark) -> str | None:
        """Return the text for a mit_mot whose buffer may be too short for the steps."""
        if remark.reason is None or remark.reason.code != Why.BUFFER_SHORT:
            return None
        steps = remark.reason.fields["steps"]
        return (
            f"the gradient writes into a buffer of all steps, mit_mot {named([remark])}, if that "
            f"is long enough for {plural(str(steps), 'step')}"
        )
