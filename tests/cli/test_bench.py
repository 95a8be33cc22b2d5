"""``scanopt bench``: what it prints, its exit codes, and what is wrong in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest

from scanopt_cli.serialization.saving import save
from support.command_line import scanopt
from support.graph_building import graph_of, scan
from support.tiers import deep

QUICK = ("--mode", "vm", "--rounds", "1", "--seconds", "0.01")


@pytest.fixture(scope="module")
def costly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a loop of few steps and one of 100 times as many, and their arguments."""
    folder = tmp_path_factory.mktemp("costly")
    y, n = pt.dscalar("y"), pt.lscalar("n")
    for name, factor in (("few", 1), ("many", 100)):
        ys = scan(lambda y: pt.tanh(y), outputs_info=[y], n_steps=n * factor, name="grow")
        save(graph_of(ys[-1]), folder / f"{name}.pkl")
    np.savez(folder / "one.npz", y=1.0, n=20)
    (folder / "nothing").mkdir()
    return folder


@pytest.mark.parametrize("columns", ["80", *deep("200", "30")])
def test_who_is_slower_in_a_pipe(costly: Path, columns: str) -> None:
    done = scanopt(
        *("bench", "few.pkl", "many.pkl", "--arguments", "one.npz", "--fail-slower", "2", *QUICK),
        cwd=costly,
        COLUMNS=columns,
    )
    assert done.code == 1, done.err
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= int(columns)
    text = " ".join(done.out.split())
    assert "arguments: one.npz: y, n = 20" in text
    assert "times as long as few.pkl" in text
    assert "more than 2 times" in text
    assert "other results than few.pkl" in text


def test_json_and_an_exit_without_a_finding(costly: Path) -> None:
    done = scanopt(
        *("bench", "many.pkl", "few.pkl", "--arguments", "one.npz", "--fail-slower", "1.05"),
        *(*QUICK, "--format", "json", "--profile"),
        cwd=costly,
    )
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["command"], told["clock"], told["rounds"]) == ("bench", "processor", 1)
    many, few = told["measured"]
    assert few["reference"] == 0
    ratio = few["costs"][0]["ratio"]
    assert 0 < ratio["low"] <= ratio["value"] <= ratio["high"] < 0.5
    assert many["profile"]["loops"][0]["steps"] == 2000
    assert many["profile"]["loops"][0]["title"] == "grow"


def test_growth_in_markdown(costly: Path) -> None:
    done = scanopt(
        *("bench", "few.pkl", "--arguments", "one.npz", "--grow", "n=10,1000", *QUICK),
        *("--format", "markdown"),
        cwd=costly,
    )
    assert done.code == 0, done.err
    assert "| n | graph | a call | per n |" in done.out
    assert "| 1000 | few.pkl |" in done.out


@pytest.mark.deep
def test_graphs_may_be_in_directories_and_lists(costly: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("few.pkl\n")
    names = []
    for words in (["f*.pkl", "many.pkl", "few.pkl"], [".", "--files-from", tmp_path / "list"]):
        options = ("--arguments", "one.npz", "--format", "json", *QUICK)
        done = scanopt("bench", *words, *options, cwd=costly)
        assert done.code == 0, done.err
        names.append([graph["source"] for graph in json.loads(done.out)["measured"]])
    assert names == [["few.pkl", "many.pkl", "few.pkl (2)"]] * 2


WRONG = {
    "none.pkl: no such file": ["none.pkl"],
    "there is no mode 'nope'": ["few.pkl", "--mode", "nope"],
    "--mode: mode plain compiles nothing": ["few.pkl", "--mode", "plain"],
    "--fail-slower: takes a second graph": ["few.pkl", "--fail-slower", "1.05"],
    "--fail-slower: must be positive": ["few.pkl", "many.pkl", "--fail-slower", "nan"],
    "--grow: there is no input 'k'": ["few.pkl", "--grow", "k=1,2"],
    "--grow: 'n' names no input": ["few.pkl", "--grow", "n"],
    "--clock: there is no clock 'sun'": ["few.pkl", "--clock", "sun"],
    "--rounds: it must be at least 1": ["few.pkl", "--rounds", "0"],
    "few.pkl: is no file of arrays": ["few.pkl", "--arguments", "few.pkl"],
    "GRAPH... is missing": [],
    "holds no graph": ["few.pkl", "nothing"],
    "no file fits": ["*.nothing"],
    "--files-from none: cannot be read": ["--files-from", "none"],
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_told_in_a_line(costly: Path, message: str) -> None:
    done = scanopt("bench", *WRONG[message], cwd=costly, COLUMNS="500")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith("scanopt: error: ")
    assert message in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slower", "fast"], "--slower: 'fast' is no time; as in 2ms or 0.5s"),
        (["--slower", "0ms"], "--slower: must be more than 0"),
        (["--slower", f"{'9' * 400}s"], "--slower: must be more than 0"),
        (["--larger", "3ms"], "--larger: '3ms' is no amount of memory"),
        (["--slower", "1s", "--larger", "1MB"], "--slower and --larger: are two properties"),
        (["--check", "true {}", "--slower", "1s"], "--check and --slower: are two properties"),
        (["--slower", "1s", "--mode", "plain"], "--slower: is of compiled calls"),
    ],
)
def test_wrong_bounds_of_bisect(costly: Path, options: list[str], message: str) -> None:
    done = scanopt("bisect", "few.pkl", *options, cwd=costly, COLUMNS="1000")
    assert (done.code, done.out) == (2, "")
    assert message in " ".join(done.err.split())


@pytest.mark.deep
def test_a_bound_of_bisect(costly: Path) -> None:
    done = scanopt("bisect", "few.pkl", "-p", "none", "--mode", "vm", "--slower", "1h", cwd=costly)
    assert done.code == 2
    done = scanopt("bisect", "few.pkl", "-p", "none", "--mode", "vm", "--slower", "9s", cwd=costly)
    assert done.code == 0
    assert "a call takes more than 9 s" in " ".join(done.out.split())
