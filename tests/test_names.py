"""A name of a module or of a class says which one is meant."""

from __future__ import annotations

import ast
import subprocess
import sys
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


def test_a_function_of_the_package_is_no_subpackage() -> None:
    """Whichever is imported first; in a process of its own, where neither was."""
    code = (
        "import scanopt_cli as so, scanopt_cli.diff\n"
        "from scanopt_cli import diff\n"
        "from scanopt_cli.diff.comparing import diff as function\n"
        "assert so.diff is diff is function, so.diff\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
