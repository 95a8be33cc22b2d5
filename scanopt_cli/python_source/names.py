"""Identifiers for what a graph's author calls anything: names are text, and never become code."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable

_LONGEST = 40
_NO_LETTER = re.compile(r"\W+", re.ASCII)
_NUMBERED = re.compile(r"_\d+$")
RESERVED = frozenset(
    {*keyword.kwlist, *keyword.softkwlist, *dir(builtins)}
    | {"constants", "inputs", "outputs", "inner", "function", "state", "generator"}
)
"""What no variable of a script is called."""


def identifier(text: str | None) -> str | None:
    """Return ``text`` as an identifier, ``P_0_1`` for ``P[0, 1]``; None if nothing of it is left.

    Only ASCII stays, so that a script can be printed anywhere; Greek letters are spelled.
    """
    if not text:
        return None
    known = unicodedata.normalize("NFKC", text[: 4 * _LONGEST])
    plain = "".join(char if char.isascii() else _spelled(char) for char in known)
    name = _NO_LETTER.sub("_", plain).strip("_")[:_LONGEST].rstrip("_")
    if name[:1].isdigit():
        name = f"v{name}"
    return name if name.isidentifier() else None


def _spelled(char: str) -> str:
    """Return the name of a Greek letter: ``sigma``."""
    words = unicodedata.name(char, "").lower().split()
    return words[-1] if words[:1] == ["greek"] and words[-1].isalpha() else "_"


class Names:
    """Gives out identifiers, each of them once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*RESERVED, *taken}
        self._numbers: dict[str, int] = {}

    def unique(self, wanted: str | None, default: str) -> str:
        """Return ``wanted`` as an identifier, or ``default``, with a number if it is taken."""
        base = identifier(wanted) or default
        if base not in self._taken:
            self._taken.add(base)
            return base
        base = _NUMBERED.sub("", base)
        number = self._numbers.get(base, 1)
        while f"{base}_{number}" in self._taken:
            number += 1
        self._numbers[base] = number + 1
        self._taken.add(f"{base}_{number}")
        return f"{base}_{number}"

    def inside(self) -> Names:
        """Return names of a scope inside of this one, which hide none of it."""
        made = Names()
        made._taken = set(self._taken)
        return made
