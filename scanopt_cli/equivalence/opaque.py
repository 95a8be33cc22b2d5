"""Tokens for what cannot be told by value: the same object has the same token, no two share one.

``id`` alone will not do: it is used again when an object is gone, and by chance in another process.
"""

from __future__ import annotations

import secrets
import weakref
from contextlib import suppress
from itertools import count
from typing import Any

_process = secrets.token_hex(16)
_numbers = count()
# By id, with what keeps the id from being used again: a weak reference that takes the entry away
# when the object goes, or the object where none can be made.
_tokens: dict[int, tuple[object, str]] = {}


def token(value: Any) -> str:
    """Return a text for ``value`` that nothing else has or will have, here or anywhere."""
    key = id(value)
    known = _tokens.get(key)
    if known is None:
        keep: object = value
        with suppress(TypeError):  # lists and the like stay alive from now on
            keep = weakref.ref(value, lambda _: _tokens.pop(key, None))
        known = _tokens[key] = (keep, f"{_process} {next(_numbers)}")
    return known[1]
