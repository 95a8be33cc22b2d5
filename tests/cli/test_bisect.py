"""``scanopt bisect``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from support.command_line import run, scanopt
from support.graph_building import graph_of


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph in which a rewriter of PyTensor's adds up booleans, in Python."""
    path = tmp_path_factory.mktemp("broken") / "booleans.pkl"
    is_large = pt.gt(abs(pt.dscalar("x")), 0.001)
    so.save(graph_of((1 - is_large) + (1 - is_large)), path)
    return path


def test_a_rewriter_of_pytensor(broken: Path, tmp_path: Path) -> None:
    done = scanopt("bisect", broken, "-p", "none", "--mode", "vm", "-o", tmp_path)
    assert done.code == 1
    assert "PyTensor's local_add_canonizer, rewrite" in done.out
    assert "1 in place of 0, compiled by vm" in done.out
    assert "canonicalize → local_add_canonizer" in done.out
    before, after = (so.load(tmp_path / f"{name}.pkl") for name in ("before", "after"))
    assert not so.diff(before, after).same


def test_a_script_that_fails_without_scanopt(broken: Path, tmp_path: Path) -> None:
    small, script = tmp_path / "small.pkl", tmp_path / "bug.py"
    options = ["--mode", "vm", "--repro", script]
    done = scanopt("bisect", broken, "-p", "none", *options)
    assert done.code == 1
    assert f"wrote {script}" in " ".join(done.err.split())
    assert scanopt("reduce", broken, "-o", small, *options).code == 0
    text = script.read_text()
    assert "scanopt_cli" not in text
    assert len(text.splitlines()) < 40
    ran = run([sys.executable, str(script)], tmp_path, {})
    assert ran.code == 1
    assert "wanted: 0 found: 1" in ran.out
    assert "AssertionError" in ran.err


def test_no_script_of_what_is_right(files: Path, tmp_path: Path) -> None:
    script = tmp_path / "bug.py"
    done = scanopt("bisect", files / "power.pkl", "--mode", "vm", "--repro", script)
    assert done.code == 2
    assert "--repro: is for what PyTensor compiles wrongly" in done.err
    assert not script.exists()


def test_json(broken: Path) -> None:
    done = scanopt("bisect", broken, "-p", "none", "--mode", "vm", "--format", "json")
    told = json.loads(done.out)
    assert (done.code, told["command"]) == (1, "bisect")
    (culprit,) = told["culprits"]
    assert (culprit["maker"], culprit["name"]) == ("pytensor", "local_add_canonizer")
    assert culprit["number"] <= culprit["of"]


def test_nothing_is_broken(files: Path) -> None:
    done = scanopt("bisect", files / "power.pkl", "--mode", "plain")
    assert done.code == 0
    assert "nothing found" in done.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--check", "true {}", "--raises", ""], "--check and --raises: are two properties"),
        (["--check", "true"], "--check: 'true' has no {} for the path of a graph"),
        (["--check", "no-such-command-there {}"], "no-such-command-there: No such file"),
        (["-o", "no-such-directory"], "-o no-such-directory: there is no such directory"),
        (["-p", "no-such-pass"], "no-such-pass"),
        (["--mode", "no-such-mode"], "there is no mode 'no-such-mode'"),
        (["--rtol", "much"], "--rtol"),
    ],
)
def test_bad_options(files: Path, options: list[str], message: str) -> None:
    done = scanopt("bisect", files / "power.pkl", *options)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""


def test_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.pkl"
    path.write_bytes(b"no graph")
    done = scanopt("bisect", path)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
