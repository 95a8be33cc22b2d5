"""A name of a module or of a class says which one is meant."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import scanopt_cli

_PACKAGE = Path(scanopt_cli.__file__).parent


def _repeated(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_no_two_modules_of_one_name() -> None:
    names = [path.stem for path in _PACKAGE.rglob("*.py") if path.stem != "__init__"]
    assert _repeated(names) == []


def test_no_two_classes_of_one_name() -> None:
    names = [
        node.name
        for path in _PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert _repeated(names) == []
