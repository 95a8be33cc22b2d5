"""Where ``-o`` writes: to a file or into a directory, and over a graph only by ``--force``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.serialization.loading import load
from support.command_line import Outcome, scanopt

OPTIMIZE = ("optimize", "-q", "--diff", "none")
GRAD = ("grad", "--no-check", "--stage", "raw")


@pytest.fixture
def place(files: Path, tmp_path: Path) -> Path:
    """A folder with an empty folder ``out``, and graphs of one name in ``a`` and ``b``."""
    for folder in ("a", "b", "out"):
        (tmp_path / folder).mkdir()
    shutil.copy(files / "wasteful.pkl", tmp_path / "a" / "same.pkl")
    shutil.copy(files / "off.pkl", tmp_path / "b" / "same.pkl")
    shutil.copy(files / "power.pkl", tmp_path / "b" / "power.pkl")
    return tmp_path


def contents(place: Path) -> dict[str, bytes]:
    files = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def refused(done: Outcome, told: str) -> None:
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert told in done.err


def test_files_in_several_directories_keep_plain_names(place: Path) -> None:
    done = scanopt(*OPTIMIZE, "a/same.pkl", "b/power.pkl", "-o", "out", cwd=place)
    assert done.code == 0
    assert contents(place / "out").keys() == {"same.pkl", "power.pkl"}


def test_files_of_one_name_keep_their_directories(place: Path) -> None:
    names = ("a/same.pkl", "b/../b/same.pkl", "b/power.pkl")
    assert scanopt(*OPTIMIZE, *names, "-o", "out", cwd=place).code == 0
    assert contents(place / "out").keys() == {"a/same.pkl", "b/same.pkl", "power.pkl"}


def test_one_file_that_is_spelled_in_two_ways_keeps_its_name(place: Path) -> None:
    names = ("a/same.pkl", "b/../a/same.pkl")
    assert scanopt(*OPTIMIZE, *names, "-o", "out", cwd=place).code == 0
    assert contents(place / "out").keys() == {"same.pkl"}


@pytest.mark.parametrize(
    ("command", "graph", "output"),
    [
        (OPTIMIZE, "a/same.pkl", "a/same.pkl"),
        (OPTIMIZE, "a/same.pkl", "link.pkl"),
        (OPTIMIZE, "a/same.pkl", "a"),
        (GRAD, "b/power.pkl", "b/power.pkl"),
        (GRAD, "b/power.pkl", "b/../b/power.pkl"),
    ],
)
def test_a_graph_is_overwritten_only_by_force(
    command: tuple[str, ...], graph: str, output: str, place: Path
) -> None:
    (place / "link.pkl").symlink_to(place / "a" / "same.pkl")
    before = contents(place)
    done = scanopt(*command, graph, "-o", output, cwd=place)
    refused(done, f"scanopt: error: {graph}: would be overwritten; ")
    assert "--force" in done.err
    assert contents(place) == before
    digest_before = digest(load(place / graph).fgraph)
    assert scanopt(*command, graph, "-o", output, "--force", cwd=place).code == 0
    assert contents(place).keys() == before.keys()
    assert digest(load(place / graph).fgraph) != digest_before


@pytest.mark.parametrize("output", [".", ""])
def test_a_directory_is_not_that_of_the_graph(output: str, place: Path) -> None:
    done = scanopt(*OPTIMIZE, "same.pkl", "-o", output, cwd=place / "a")
    refused(done, "same.pkl: would be overwritten; ")


def test_a_graph_never_becomes_the_result_of_another(files: Path, tmp_path: Path) -> None:
    """It would be read after it was overwritten; no order of the files makes a difference."""
    inner = tmp_path / "inner"
    inner.mkdir()
    shutil.copy(files / "wasteful.pkl", tmp_path / "a.pkl")
    shutil.copy(files / "clean.pkl", inner / "a.pkl")
    before = contents(tmp_path)
    graphs = ["a.pkl", "inner/a.pkl"]
    for order in (graphs, graphs[::-1]):
        for force in ([], ["--force"]):
            done = scanopt(*OPTIMIZE, *order, "-o", "inner", *force, cwd=tmp_path)
            refused(done, "inner/a.pkl: would be overwritten; give another directory than inner\n")
            assert contents(tmp_path) == before


def test_force_overwrites_each_of_several_by_its_own(place: Path) -> None:
    before = contents(place)
    names = ("a/same.pkl", "b/same.pkl")
    done = scanopt(*OPTIMIZE, *names, "-o", ".", cwd=place)
    refused(done, "a/same.pkl: would be overwritten; ")
    assert scanopt(*OPTIMIZE, *names, "-o", ".", "--force", cwd=place).code == 0
    after = contents(place)
    assert {name for name in after if after[name] != before.get(name)} == set(names)


@pytest.mark.parametrize("command", [(*OPTIMIZE, "a/same.pkl"), (*GRAD, "b/power.pkl")])
def test_force_is_for_an_output(command: tuple[str, ...], place: Path) -> None:
    refused(scanopt(*command, "--force", cwd=place), "--force: is for -o; give both, or neither")
