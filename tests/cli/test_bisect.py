"""``scanopt bisect``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.cli.properties import property_of
from support.command_line import run, scanopt
from support.graph_building import graph_of


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph in which a rewriter of PyTensor's adds up booleans, in Python."""
    path = tmp_path_factory.mktemp("broken") / "booleans.pkl"
    is_large = pt.gt(abs(pt.dscalar("x")), 0.001)
    so.save(graph_of((1 - is_large) + (1 - is_large)), path)
    return path


@pytest.mark.deep
def test_a_rewriter_of_pytensor(broken: Path, tmp_path: Path) -> None:
    done = scanopt("bisect", broken, "-p", "none", "--mode", "vm", "-o", tmp_path)
    assert done.code == 1
    assert "PyTensor's local_add_canonizer, rewrite" in done.out
    assert "1 in place of 0, compiled by vm" in done.out
    assert "canonicalize → local_add_canonizer" in done.out
    before, after = (so.load(tmp_path / f"{name}.pkl") for name in ("before", "after"))
    assert not so.diff(before, after).same


@pytest.mark.deep
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


@pytest.mark.deep
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
        (["--check", "true {}", "--arguments", "x.npz"], "--arguments: are not for a command"),
        (["--steps", "5"], "--steps: is for --slower and --larger"),
        (["--arguments", "no-such-file"], "no-such-file: cannot be read"),
    ],
)
def test_bad_options(files: Path, options: list[str], message: str) -> None:
    done = scanopt("bisect", files / "power.pkl", *options)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""


@pytest.mark.deep
@pytest.mark.parametrize("command", ["bisect", "reduce"])
def test_given_arguments(tmp_path: Path, command: str) -> None:
    """The fault shows where an input is large, which no drawn argument is."""
    path, values = tmp_path / "graph.pkl", tmp_path / "values.npz"
    is_large = pt.gt(pt.dscalar("x"), 1e6)
    so.save(graph_of((1 - is_large) + (1 - is_large)), path)
    np.savez(values, x=np.float64(2e6))
    options: list[str | Path] = [command, path, "-p", "none", "--mode", "vm"]
    options += ["-o", tmp_path / "small.pkl"] if command == "reduce" else []
    drawn = scanopt(*options)
    given = scanopt(*options, "--arguments", values)
    if command == "bisect":
        assert (drawn.code, given.code) == (0, 1)
        assert "PyTensor's local_add_canonizer, rewrite" in given.out
    else:
        assert (drawn.code, given.code) == (2, 0)
        assert so.load(tmp_path / "small.pkl").recorded


def test_steps_of_what_a_call_costs() -> None:
    for costs in (("1s", None), (None, "1GB")):
        given, default = (
            property_of("vm", None, None, *costs, None, 5, 0, None, steps) for steps in (7, None)
        )
        assert isinstance(given, so.Slower | so.Larger)
        assert isinstance(default, so.Slower | so.Larger)
        assert (given.steps, default.steps) == (7, 1_000)


@pytest.mark.deep
def test_a_rewriter_in_a_command(broken: Path, tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text(
        "import sys, scanopt_cli as so, pytensor\n"
        "graph = so.load(sys.argv[1]).fgraph\n"
        "mode = pytensor.compile.mode.Mode('vm', 'fast_run').excluding('fusion')\n"
        "f = pytensor.function(graph.inputs, graph.outputs, mode=mode, name='counts')\n"
        "sys.exit(int(f(1.0)[0] != 0))\n"
    )
    check = f"{sys.executable} {script} {{}}"
    done = scanopt("bisect", broken, "-p", "none", "--check", check, "--format", "json")
    assert (done.code, done.err) == (1, "")
    (culprit,) = json.loads(done.out)["culprits"]
    assert (culprit["maker"], culprit["name"]) == ("pytensor", "local_add_canonizer")
    assert culprit["function"] == "number 1, function counts, at check.py:4"
    assert (culprit["is_certain"], culprit["since"]) == (True, culprit["number"])


def test_a_command_that_rewrites_nothing(broken: Path) -> None:
    done = scanopt("bisect", broken, "--check", "false {}")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "exit code 1, and PyTensor rewrites nothing in the command" in done.err


def test_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.pkl"
    path.write_bytes(b"no graph")
    done = scanopt("bisect", path)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
