"""The registry of rules: the built-in ones in a tuple, and those that other packages add."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pkgutil import resolve_name
from types import MappingProxyType

from scanopt_cli.errors import PlugInWarning, ScanoptError, brief
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.registry import package_name
from scanopt_cli.rules.rule_contract import Rule
from scanopt_cli.rules.rule_names import BUILTIN
from scanopt_cli.rules.rule_names import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP

_CODE = re.compile(r"[A-Z]+\d{3}")


@cache
def rules() -> Mapping[str, type[Rule]]:
    """Return every rule by its code, those that other packages add behind the built-in ones.

    Of entry points that add none, a `PlugInWarning` says why.
    """
    builtin = [resolve_name(f"scanopt_cli.rules.{entry}") for entry in BUILTIN.values()]
    found: dict[str, type[Rule]] = {cls.code: cls for cls in builtin}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            cls = point.load()
            if not (isinstance(cls, type) and issubclass(cls, Rule)):
                raise TypeError(f"{point.value} is not a subclass of scanopt's Rule")
            if not _CODE.fullmatch(cls.code) or cls.code in found:
                raise TypeError(f"its code {cls.code!r} is taken, or no code")
        except (Exception, SystemExit) as error:
            text = f"the package {package_name(point)} adds no rule {point.name!r}: {brief(error)}"
            warnings.warn(text, PlugInWarning, stacklevel=2)
        else:
            found[cls.code] = cls
    return MappingProxyType(found)


def mended_by(passes: Sequence[Pass]) -> tuple[str, ...]:
    """Return the codes of the rules of which ``passes`` hold the fix."""
    names = {item.name for item in passes}
    fixes = {code: rule.fix.names for code, rule in rules().items() if rule.fix is not None}
    return tuple(code for code, fix in fixes.items() if fix and fix <= names)


def selected(select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> list[type[Rule]]:
    """Return the rules whose codes begin with one of ``select``, without those to ignore.

    Without ``select``, they are all that are looked for by default. Of two prefixes that both fit
    a code, the longer one counts.

    Raises
    ------
    ScanoptError
        If no rule begins with one of them.
    """
    for prefix in (*select, *ignore):
        if not prefix or not any(code.startswith(prefix) for code in rules()):
            raise ScanoptError(
                f"no rule's code begins with {prefix!r}", hint="`scanopt rules` lists them"
            )

    def longest(prefixes: tuple[str, ...], code: str) -> int:
        return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=-1)

    return [
        rule
        for code, rule in rules().items()
        if (longest(select, code) if select else rule.is_default - 1) > longest(ignore, code)
    ]
