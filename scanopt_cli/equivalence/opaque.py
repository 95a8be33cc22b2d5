"""Tokens for values that cannot be encoded: one object has one token, and no two share one.

``id`` alone is not enough: it is used again when an object is gone, and by chance in another
process.
"""

from __future__ import annotations

import secrets
import weakref
from contextlib import suppress
from itertools import count
from typing import Any

_process = secrets.token_hex(16)
_numbers = count()
# By id. So that no id is used again, an entry holds a weak reference, which deletes the entry when
# the object goes, or the object itself where it allows no weak reference.
_tokens: dict[int, tuple[object, str]] = {}


def identity(value: Any) -> str:
    """Return a text that identifies ``value`` and never anything else, in any process."""
    key = id(value)
    known = _tokens.get(key)
    if known is None:
        keep: object = value
        with suppress(TypeError):  # lists and the like stay alive from now on
            keep = weakref.ref(value, lambda _: _tokens.pop(key, None))
        known = _tokens[key] = (keep, f"{_process} {next(_numbers)}")
    return known[1]
