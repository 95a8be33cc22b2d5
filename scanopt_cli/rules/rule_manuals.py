"""The manual of a rule: its own docstring, so that it cannot go stale."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from scanopt_cli.errors import ScanoptError
from scanopt_cli.rules.rule_registry import rules

HOME = "https://github.com/scanopt/scanopt"
"""Where scanopt is published."""


@dataclass(frozen=True, slots=True)
class RuleManual:
    """The manual of a rule: ``text`` is its docstring, ``summary`` the first line of it.

    ``fix`` names the passes that mend what it finds, which may not be safe. ``link`` is where it is
    published, if scanopt itself has the rule. ``is_default`` says whether `check` looks for it
    unless codes are selected.
    """

    code: str
    name: str
    severity: str
    summary: str
    text: str
    fix: str | None
    is_safe: bool
    link: str | None
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
    # In Markdown, what is indented is code without a second colon before it.
    text = re.sub("::$", ":", inspect.getdoc(found) or "", flags=re.MULTILINE)
    is_own = found.__module__.startswith(f"{__package__}.")
    return RuleManual(
        code=found.code,
        name=found.name,
        severity=found.severity.value,
        summary=text.partition("\n")[0],
        text=text,
        fix=None if found.fix is None else found.fix.passes,
        is_safe=found.fix is not None and found.fix.is_safe,
        link=f"{HOME}/blob/main/docs/rules.md#{found.code.lower()}-{found.name}"
        if is_own
        else None,
        is_default=found.is_default,
    )


def rule_manuals() -> tuple[RuleManual, ...]:
    """Return the manuals of all rules."""
    return tuple(map(rule_manual, rules()))
