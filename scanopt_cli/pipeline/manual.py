"""The manual of a pass: its own docstring, so that it cannot go stale."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields

import pytensor

from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.grammar import parse, pass_class
from scanopt_cli.pipeline.registry import registry


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a pass, its type and its default as text."""

    name: str
    type: str
    default: str


@dataclass(frozen=True, slots=True)
class Manual:
    """The manual of a pass: ``text`` is its docstring, ``summary`` the first line of it.

    Where the docstring says ``PyTensor <version>``, they name the PyTensor that is installed.
    """

    name: str
    summary: str
    text: str
    options: tuple[Option, ...]
    trims: bool


def manual(name: str) -> Manual:
    """Return the manual of the pass called ``name``; errors as of `pass_class`."""
    return _manual(pass_class(name))


def manuals(preset: str | None = None) -> tuple[Manual, ...]:
    """Return the manuals of a preset's passes in their order, else of all, built-in ones first."""
    every = registry().values() if preset is None else map(type, parse(preset))
    return tuple(_manual(cls) for cls in dict.fromkeys(every))


def _manual(cls: type[Pass]) -> Manual:
    text = (inspect.getdoc(cls) or "").replace("<version>", pytensor.__version__)
    options = tuple(
        Option(option.name, type(option.default).__name__, str(option.default).lower())
        for option in fields(cls)
    )
    return Manual(cls.name, text.partition("\n")[0], text, options, cls.trims)
