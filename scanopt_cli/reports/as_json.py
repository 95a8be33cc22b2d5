"""The JSON of a command: the object that the library returns, with the same names."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from os import PathLike, fspath
from textwrap import indent
from typing import Any

SCHEMA_VERSION = 5


def to_json(command: str, result: Any) -> str:
    """Return ``result`` as one JSON object that begins with the schema version and the command.

    Dataclasses become objects; a field with ``as_json`` false in its metadata is omitted. The text
    is ASCII: no name in it moves a terminal's cursor, is invalid Unicode or starts a command of a
    CI service.
    """
    plain_result = plain(result)
    body = plain_result if isinstance(plain_result, dict) else {"result": plain_result}
    return _text(_head(command) | body, indent=2)


def _head(command: str) -> dict[str, Any]:
    return {"schema": SCHEMA_VERSION, "command": command}


def _text(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent).replace("##", "#\\u0023")  # ``##`` starts commands


@dataclass(frozen=True, slots=True)
class JsonList:
    """The JSON of a command on several files, which is printed entry by entry, as files are done.

    Attributes
    ----------
    command
        The name of the command.
    is_lines
        Whether each entry is an object of its own, on a line of its own (JSON Lines), which begins
        with the schema version and the command; else there is one object, whose list ``graphs`` has
        the entries.
    head
        What is said of all files.
    """

    command: str
    is_lines: bool = False
    head: Mapping[str, Any] = field(default_factory=dict)

    def entry(self, entry: Any) -> str:
        """Return the text of an entry, which stands between those of `before` and `end`."""
        if self.is_lines:
            return f"{_text({**_head(self.command), **self.head, **plain(entry)})}\n"
        return indent(_text(plain(entry), indent=2), "    ")

    def before(self, number: int) -> str:
        """Return what stands before an entry, by its number from 0 on."""
        if self.is_lines:
            return ""
        return ",\n" if number else f"{self._opening()}\n"

    def end(self, count: int) -> str:
        """Return what stands behind the last of so many entries."""
        if self.is_lines:
            return ""
        return "\n  ]\n}\n" if count else f"{self._opening()}]\n}}\n"

    def _opening(self) -> str:
        return to_json(self.command, {**self.head, "graphs": []}).removesuffix("]\n}")


def plain(value: Any) -> Any:
    """Return ``value`` as numbers, strings, lists and dicts; other objects become their text.

    So do, in arrays, the numbers that JSON does not have: ``"nan"``, ``"inf"``, ``"-inf"``.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.metadata.get("as_json", True)
        }
    if isinstance(value, Enum):
        return value.value
    if (numpy := sys.modules.get("numpy")) and isinstance(value, numpy.ndarray):
        return _numbers(value.tolist())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return fspath(value) if isinstance(value, PathLike) else str(value)


def _numbers(value: Any) -> Any:
    """Return the entries of an array, in lists, as JSON has them."""
    if isinstance(value, list):
        return list(map(_numbers, value))
    is_json = isinstance(value, bool | int | str) or (
        isinstance(value, float) and math.isfinite(value)
    )
    return value if is_json else str(value)
