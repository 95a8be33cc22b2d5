"""A fact as data: a code with its fields. Only `scanopt_cli.reports` puts facts into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Fact:
    """A code, and the fields of its text: numbers, names, formulas, or tuples of them."""

    code: StrEnum
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.code, *self.fields.items()))
