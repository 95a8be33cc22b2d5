"""CONTRIBUTING: its map is that of the linter, its pass works, and its commands are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / ".github" / "CONTRIBUTING.md").read_text()


def test_the_map_is_that_of_the_linter() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contract = tomllib.load(file)["tool"]["importlinter"]["contracts"][0]
    layers = [set(layer.split(" | ")) for layer in contract["layers"]]
    rows = re.findall(r"^\| (`.+?`) \|", TEXT.partition("## A pass")[0], re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == layers
    packages = {
        path.name.removesuffix(".py")
        for path in (ROOT / "scanopt_cli").iterdir()
        if not path.name.startswith(("__", "startup")) and path.suffix in ("", ".py")
    }
    assert set.union(*layers) == packages


def test_the_pass_of_ten_minutes(tmp_path: Path) -> None:
    """The two files, as they stand there, pass their own tests."""
    part = TEXT.partition("## A pass in ten minutes")[2]
    source, tests = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    for name, text in (("drop_names.py", source), ("test_drop_names.py", tests)):
        assert f"`{name}`" in part
        (tmp_path / name).write_text(text)
    path = os.pathsep.join([str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_drop_names.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_commands_and_places_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z-]+)", TEXT))
    assert {"test", "test-deep", "lint", "dist", "release", "bench-save"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for place in re.findall(r"`((?:scanopt_cli|tests|\.ci)/[\w./-]+)`", TEXT):
        assert (ROOT / place).exists() or place.endswith("drop_names.py"), place
    for link in re.findall(r"\]\((\.\./[^)]+)\)", TEXT):
        assert (ROOT / ".github" / link.partition("#")[0]).exists()


def test_every_marker_is_told_of() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        markers = tomllib.load(file)["tool"]["pytest"]["ini_options"]["markers"]
    for marker in markers:
        assert f"`{marker.partition(':')[0]}" in TEXT
