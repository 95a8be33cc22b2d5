"""P002: a sequence whose rows are all equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from scanopt_cli.remarks import Code, Remark
from scanopt_cli.rules.rule_contract import Fix, PassRule, Severity, named


class EqualRows(PassRule):
    """All rows of a sequence are provably equal, so it can be a non-sequence.

    A sequence is read and copied at each step, and nothing that is computed of it alone leaves the
    loop::

        scan(lambda c, s: s * c, sequences=[pt.full((n,), c)], outputs_info=[x])

    Pass one row by ``non_sequences``; the fix does.
    """

    code: ClassVar[str] = "P002"
    name: ClassVar[str] = "equal-rows"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix] = Fix("inline-constants")
    codes: ClassVar[frozenset[str]] = frozenset({Code.SEQUENCE_UNIFORM})

    def text(self, remarks: Sequence[Remark]) -> str:
        """Return the text of the finding."""
        return f"all rows are equal of {named(remarks, with_kinds=True)}"
