"""The manual of a rule: its own docstring, so that it cannot go stale."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from scanopt_cli.errors import ScanoptError
from scanopt_cli.rules.rule_registry import rules


@dataclass(frozen=True, slots=True)
class RuleManual:
    """The manual of a rule: ``text`` is its docstring, ``summary`` the first line of it.

    ``fix`` names the passes that mend what it finds, which may not be safe. ``is_default`` says
    whether `check` looks for it unless codes are selected.
    """

    code: str
    name: str
    severity: str
    summary: str
    text: str
    fix: str | None
    is_safe: bool
    is_default: bool


def rule_manual(code: str) -> RuleManual:
    """Return the manual of the rule with a code, or of that name.

    Raises
    ------
    ScanoptError
        If there is none.
    """
    found = next((cls for cls in rules().values() if code in (cls.code, cls.name)), None)
    if found is None:
        raise ScanoptError(f"there is no rule {code!r}", hint="`scanopt rules` lists them")
    text = inspect.getdoc(found) or ""
    return RuleManual(
        code=found.code,
        name=found.name,
        severity=found.severity.value,
        summary=text.partition("\n")[0],
        text=text,
        fix=None if found.fix is None else found.fix.passes,
        is_safe=found.fix is not None and found.fix.is_safe,
        is_default=found.is_default,
    )


def rule_manuals() -> tuple[RuleManual, ...]:
    """Return the manuals of all rules."""
    return tuple(map(rule_manual, rules()))
