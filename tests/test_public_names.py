"""What ``import scanopt_cli`` offers: the public names and nothing else, imported on first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scanopt_cli as so


def _in_a_new_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_dir_holds_the_public_names_only() -> None:
    assert dir(so) == sorted(["__version__", *so.__all__])
    assert so.__all__ == sorted(so.__all__)
    used = "import scanopt_cli as so; so.load; so.inspect; from scanopt_cli import loop; "
    assert _in_a_new_process(f"{used}print(*dir(so))").split() == dir(so)


def test_every_public_name_is_there() -> None:
    for name in so.__all__:
        assert getattr(so, name).__name__.rpartition(".")[2] == name
    code = "from scanopt_cli import *; import scanopt_cli.loop; print(loop is scanopt_cli.loop)"
    assert _in_a_new_process(code) == "True"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        so.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["enabled", "Enabled", "nan_guard", "capture", "optimize", "loop"])
def test_a_name_may_be_the_first_that_is_used(name: str) -> None:
    """Before anything imports PyTensor, whose import registers the passes."""
    assert _in_a_new_process(f"import scanopt_cli as so; print(so.{name}.__name__)").endswith(name)


def test_type_checkers_see_the_same_names() -> None:
    """What they read is imported for them alone, under the name that is imported on first use."""
    tree = ast.parse(Path(so.__file__).read_text())
    (block,) = (
        node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node)
    )
    seen = {
        alias.asname: (line.module, alias.name)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    assert sorted(seen) == so.__all__
    for public, (module, name) in seen.items():
        assert public == name
        assert f"{module}.{name}" in (f"{so._MODULES.get(name)}.{name}", "scanopt_cli.loop")


def test_importing_the_package_imports_neither_pytensor_nor_rich() -> None:
    code = "import sys, scanopt_cli; dir(scanopt_cli); print({'pytensor', 'rich'} & {*sys.modules})"
    assert _in_a_new_process(code) == "set()"


def test_what_public_functions_return_is_public() -> None:
    """By their annotations."""
    functions = [getattr(so, name) for name in so.__all__ if name[0].islower() and name != "loop"]
    returned = {function.__annotations__["return"] for function in functions}
    names = {name.removeprefix("Iterator[").rstrip("]") for name in returned}
    assert names - {"None", "str"} <= {*so.__all__}
    assert {"OptimizeResult", "AuditReport", "Enabled", "Capture", "Inspection"} <= names
