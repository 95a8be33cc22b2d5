"""``scanopt python``."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.ir.graph import from_io
from scanopt_cli.serialization.values import write_values
from support.command_line import process, run, scanopt
from support.graph_building import graph_of
from support.tiers import deep


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with graph files: one with a long constant, and one with recorded values."""
    folder = tmp_path_factory.mktemp("more")
    x = pt.dvector("x")
    so.save(from_io([x], [x * np.arange(40.0)]), folder / "long.pkl")
    so.save(from_io([x], [x * 2 + 1]), folder / "recorded.pkl")
    write_values(folder / "recorded.pkl", [(np.arange(3.0),)])
    return folder


def test_a_script_can_be_piped(files: Path) -> None:
    for name in ("clean", "grad"):
        done = scanopt("python", files / f"{name}.pkl")
        assert (done.code, done.err) == (0, "")
        assert done.out == so.to_python(files / f"{name}.pkl").text
        names: dict[str, object] = {}
        exec(done.out, names)
        built = (names["inputs"], names["outputs"])
        assert so.digest(built) == so.digest(files / f"{name}.pkl")  # type: ignore[arg-type]


def test_a_script_and_its_constants_are_written(more: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    done = scanopt("python", more / "long.pkl", "-o", path)
    assert (done.code, done.out, done.err) == (0, "", f"scanopt: wrote {path}\n")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.npz", "model.py"]
    ran = run([sys.executable, str(path)], tmp_path, {})
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_long_constants_need_a_file(more: Path) -> None:
    done = scanopt("python", more / "long.pkl")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "name the script by -o FILE.py" in done.err


def test_recorded_values_are_printed(more: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    assert scanopt("python", more / "recorded.pkl").code == 0
    assert scanopt("python", more / "recorded.pkl", "--values").code == 2
    assert scanopt("python", more / "recorded.pkl", "--values", "-o", path).code == 0
    assert run([sys.executable, str(path)], tmp_path, {}).out == "[1. 3. 5.]\n"
    done = scanopt("python", more / "long.pkl", "--values", "-o", path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "has no recorded values" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no.pkl"], "no such file"),
        (["."], "is a directory"),
        (["clean.pkl", "-o", "no/model.py"], "no such directory"),
        (["clean.pkl", "-o", "."], "is a directory"),
        (["clean.pkl", "-o", "clean.pkl"], "would be overwritten"),
        (["clean.pkl", "-o", "model.npz"], "is the name of the constants"),
        (["bad.pkl"], "bad.pkl"),
        ([], "GRAPH is missing"),
    ],
)
def test_errors_are_one_line(files: Path, arguments: list[str], said: str) -> None:
    bad = files / "bad.pkl"
    bad.write_bytes(b"no pickle")
    done = scanopt("python", *arguments, cwd=files)
    bad.unlink()
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert said in done.err
    assert not (files / "model.npz").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(files: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    done = scanopt("python", files / "clean.pkl", "-o", closed / "model.py")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "cannot be written" in done.err
    unreadable = tmp_path / "unreadable.pkl"
    unreadable.write_bytes((files / "clean.pkl").read_bytes())
    unreadable.chmod(0)
    assert "cannot be read" in scanopt("python", unreadable).err


@pytest.mark.parametrize("name", ["hessian", *deep("clean")])
def test_a_reader_that_leaves_early(files: Path, name: str) -> None:
    command = f"{sys.executable} -m scanopt_cli python {files / f'{name}.pkl'} | head -c 1"
    shell = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "#", "")


@pytest.mark.deep
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_the_text_is_ascii(tmp_path: Path, encoding: str) -> None:
    x = pt.dscalar("\u03c3\u2192\u00e9")
    so.save(from_io([x], [x * 2]), tmp_path / "names.pkl")
    done = process("python", tmp_path / "names.pkl", PYTHONIOENCODING=encoding)
    assert (done.code, done.err) == (0, "")
    assert "sigma" in done.out
    exec(done.out, {})


def test_notes_of_a_file_are_told_apart_from_the_script(tmp_path: Path) -> None:
    x = pt.dscalar("x")
    path = tmp_path / "noted.pkl"
    so.save(replace(graph_of(x * 2), notes=("kept by hand",)), path)
    done = scanopt("python", path)
    assert "kept by hand" in done.err
    assert done.out.startswith("# ")
