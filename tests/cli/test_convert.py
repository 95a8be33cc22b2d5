"""``scanopt convert``."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.serialization.files import values_path
from scanopt_cli.serialization.values import write_values
from support.command_line import scanopt
from support.foreign_ops import Scaled
from support.graph_building import power


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    """A pickle of a graph, with a recorded call beside it."""
    x, last = power()
    path = tmp_path / "power.pkl"
    so.save(([x], [last]), path)
    write_values(path, [[np.array(1.5)]])
    return path


@pytest.mark.parametrize("name", ["out.scanopt", "out.scanopt.gz"])
def test_there_and_back(name: str, pickled: Path, tmp_path: Path) -> None:
    data, again = tmp_path / name, tmp_path / "again.pkl"
    done = scanopt("convert", pickled, data)
    assert (done.code, done.out) == (0, "")
    assert f"wrote {data}" in done.err.replace("\n", "")
    assert data.read_bytes()[:2] == (b"PK" if name.endswith("t") else b"\x1f\x8b")
    assert scanopt("convert", data, again).code == 0
    assert again.read_bytes()[:1] == b"\x80"
    graphs = [so.load(path) for path in (pickled, data, again)]
    assert len({so.digest(graph) for graph in graphs}) == 1
    assert [graph.recorded for graph in graphs] == [((np.array(1.5),),)] * 3


def test_recorded_calls_are_in_the_file(pickled: Path, tmp_path: Path) -> None:
    data = tmp_path / "out.scanopt"
    assert scanopt("convert", pickled, data).code == 0
    assert not values_path(data).exists()
    assert so.load(data).recorded == ((np.array(1.5),),)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("out", "its name does not say what to write"),
        ("out.json", "its name does not say what to write"),
        ("power.pkl", "would be overwritten"),
        ("none/out.scanopt", "there is no such directory"),
    ],
)
def test_bad_targets(target: str, problem: str, pickled: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = scanopt("convert", pickled, tmp_path / target)
    assert done.code == 2
    assert problem in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_graph_is_replaced_by_force_alone(pickled: Path) -> None:
    assert scanopt("convert", pickled, pickled, "--force").code == 0
    assert so.load(pickled).recorded


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"PK\x03\x04 more", b"nothing", b"\x1f\x8b"])
def test_bad_files(data: bytes, tmp_path: Path) -> None:
    bad, target = tmp_path / "bad.scanopt", tmp_path / "out.pkl"
    bad.write_bytes(data)
    done = scanopt("convert", bad, target)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert not target.exists()


def test_what_is_no_data(tmp_path: Path) -> None:
    x = pt.vector("x")
    foreign, target = tmp_path / "foreign.pkl", tmp_path / "out.scanopt"
    so.save(([x], [Scaled(2.0)(x)]), foreign)
    done = scanopt("convert", foreign, target, "--allow-package", "support")
    assert done.code == 2
    told = " ".join(done.err.split())
    assert "(support.foreign_ops.Scaled) cannot be written as data" in told
    assert "name the file .pkl" in told
    assert not target.exists()


def test_a_pickle_of_others(tmp_path: Path) -> None:
    """Such as PyTensor's own, and of a dictionary of outputs."""
    x = pt.vector("x")
    plain, target = tmp_path / "plain.pkl", tmp_path / "out.scanopt"
    plain.write_bytes(pickle.dumps({"double": x * 2, "more": x + 1}))
    assert scanopt("convert", plain, target).code == 0
    graph = so.load(target)
    assert graph.output_names == ("double", "more")
    assert so.digest(graph) == so.digest(as_graph(([x], [x * 2, x + 1])))


@pytest.mark.parametrize("command", ["inspect", "check", "hash", "audit"])
def test_commands_read_data(command: str, pickled: Path, tmp_path: Path) -> None:
    data = tmp_path / "power.scanopt"
    assert scanopt("convert", pickled, data).code == 0
    done, same = (scanopt(command, path) for path in (data, pickled))
    assert done.code == same.code
    if command != "audit":
        assert done.out.replace("power.scanopt", "power.pkl") == same.out


def test_optimize_writes_by_suffix(pickled: Path, tmp_path: Path) -> None:
    kinds = {
        "a.scanopt": b"PK",
        "a.scanopt.gz": b"\x1f\x8b",
        "a.pkl": b"\x80\x05",
        "a": b"\x80\x05",
    }
    for name, magic in kinds.items():
        done = scanopt("optimize", pickled, "-p", "simplify", "-o", tmp_path / name)
        assert done.code == 0, done.err
        assert (tmp_path / name).read_bytes()[:2] == magic
        so.load(tmp_path / name)


def test_directories_hold_both_kinds(pickled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "graphs"
    folder.mkdir()
    for name in ("a.scanopt", "b.pkl", "c.scanopt.gz", "d.pkl.gz"):
        so.save(so.load(pickled), folder / name)
    (folder / "index.json").write_text("{}")
    done = scanopt("check", folder, "--format", "json", "--exit-zero")
    assert done.code == 0, done.err
    assert all(name in done.out for name in ("a.scanopt", "b.pkl", "c.scanopt.gz", "d.pkl.gz"))
    assert "index.json" not in done.out


@pytest.fixture
def many(pickled: Path, tmp_path: Path) -> Path:
    """A folder with a graph in two forms, in two directories, and a file that is none."""
    folder = tmp_path / "graphs"
    (folder / "deep").mkdir(parents=True)
    so.save(so.load(pickled), folder / "a.pkl")
    so.save(so.load(pickled), folder / "deep" / "b.pkl.gz")
    so.save(so.load(pickled), folder / "c.scanopt")
    (folder / "bad.pkl").write_bytes(b"no pickle")
    return folder


def test_a_directory_to_a_directory(many: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    done = scanopt("convert", "graphs", "out", "-j", "2", cwd=tmp_path)
    assert done.code == 2
    assert "graphs/bad.pkl" in done.err
    assert "1 of 4 graphs failed" in done.err
    assert sorted(path.name for path in out.iterdir()) == ["a.scanopt", "b.scanopt", "c.scanopt"]
    assert {so.digest(so.load(path)) for path in out.iterdir()} == {
        so.digest(so.load(many / "a.pkl"))
    }
    assert scanopt("verify", "graphs/a.pkl", "out/a.scanopt", cwd=tmp_path).code == 0


@pytest.mark.parametrize(("suffix", "magic"), [(".pkl", b"\x80"), (".pkl.gz", b"\x1f\x8b")])
def test_by_suffix(suffix: str, magic: bytes, many: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    done = scanopt("convert", many / "a.pkl", many / "c.scanopt", out, "--suffix", suffix)
    assert done.code == 0, done.err
    assert sorted(path.name for path in out.iterdir()) == [f"a{suffix}", f"c{suffix}"]
    assert all(path.read_bytes().startswith(magic) for path in out.iterdir())


def test_from_a_list(many: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "list").write_text("graphs/a.pkl\n")
    done = scanopt("convert", "--files-from", "list", "out", cwd=tmp_path)
    assert (done.code, [path.name for path in out.iterdir()]) == (0, ["a.scanopt"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["graphs"], "OUT is missing; give where to write, such as graphs.scanopt"),
        (["graphs", "none.scanopt"], "several graphs need a directory to write to"),
        (["graphs/a.pkl", "a.pkl", "--suffix", ".pkl"], "--suffix: is for a directory"),
        (["graphs/a.pkl", "graphs/c.scanopt", "graphs"], "graphs/c.scanopt: would be overwritten"),
        (["graphs/a.pkl", "graphs/a.pkl.gz", "twin"], "twin/a.scanopt: would be written twice"),
        (["graphs/a.pkl", "twin", "--suffix", "zip"], "--suffix"),
    ],
)
def test_bad_options_of_many(words: list[str], message: str, many: Path, tmp_path: Path) -> None:
    (tmp_path / "twin").mkdir()
    for folder in ("graphs", "twin"):
        so.save(so.load(many / "a.pkl"), tmp_path / folder / "a.pkl.gz")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    done = scanopt("convert", *words, cwd=tmp_path)
    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before
