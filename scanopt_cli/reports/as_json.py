"""The JSON of a command: the object that the library returns, under the same names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from os import PathLike, fspath
from typing import Any

SCHEMA_VERSION = 2


def to_json(command: str, result: Any) -> str:
    """Return ``result`` as one JSON object, with the schema version and the command in front.

    Dataclasses become objects; a field that has ``as_json`` false in its metadata is left out. The
    text is ASCII: no character of a name moves a terminal's cursor or is no Unicode,
    and none starts a command of a CI service.
    """
    plain_result = plain(result)
    body = plain_result if isinstance(plain_result, dict) else {"result": plain_result}
    text = json.dumps({"schema": SCHEMA_VERSION, "command": command} | body, indent=2)
    return text.replace("##", "#\\u0023")  # what commands in a log start with


def plain(value: Any) -> Any:
    """Return ``value`` as numbers, strings, lists and dicts; what is none of these by its text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.metadata.get("as_json", True)
        }
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return fspath(value) if isinstance(value, PathLike) else str(value)
