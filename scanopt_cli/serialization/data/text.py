"""The JSON of the table, written a row a line, and read in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LARGEST = 64 << 20
"""How many bytes the table may have; 100,000 nodes take four million."""

_MOST_PARTS = 4_000_000
"""How many values, lists and tables the table may consist of; a node takes about 10."""


def written_out(document: Mapping[str, Any]) -> bytes:
    """Return the JSON of a table of tables; each row of a list is a line."""
    return (
        b",\n".join(
            [
                b"{" + _entry(name, content) if not i else _entry(name, content)
                for i, (name, content) in enumerate(document.items())
            ]
        )
        + b"}\n"
    )


def _entry(name: str, content: Any) -> bytes:
    if isinstance(content, list) and content:
        text = "[\n" + ",\n".join(map(_dumped, content)) + "]"
    else:
        text = _dumped(content)
    return f"{json.dumps(name)}:{text}".encode()


def _dumped(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def parsed(data: bytes) -> Any:
    """Return what JSON says.

    Raises
    ------
    Exception
        Of some kind, if it is none, is too large, or has a key twice in one table.
    """
    if len(data) > LARGEST:
        raise ValueError(f"it has more than {LARGEST:,} bytes")
    # A list takes many times the memory of the two letters that it is written in.
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_PARTS:
        raise ValueError(f"it has more than {_MOST_PARTS:,} values")
    return json.loads(data.decode("utf-8"), object_pairs_hook=_table, parse_constant=_no_number)


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a table with two entries of one key")
    return made


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")
