"""Templates of texts.

``{n:noun}`` is a number with its noun, ``{names!q}`` quotes names, and ``{kinds!n}`` counts how
often each kind occurs.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping
from typing import Any

from scanopt_cli.text import enumerated, plural

_MOST_NAMES = 4


def worded(template: str, fields: Mapping[str, Any]) -> str:
    """Return a template with its fields filled in; of a tuple, the first few entries."""
    return _formatter.vformat(template, (), fields)


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return plural(value, format_spec) if format_spec else _listed(value, "")

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        if conversion == "n":
            counts = Counter(value).items()
            return ", ".join(f"{count} {kind}" for kind, count in counts) or "nothing"
        return value if conversion is None else _listed(value, "`")


_formatter = _Formatter()


def _listed(value: Any, mark: str) -> str:
    if not isinstance(value, tuple):
        return f"{mark}{value}{mark}"
    return enumerated([f"{mark}{name}{mark}" for name in value], _MOST_NAMES)
