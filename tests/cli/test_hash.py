"""``scanopt hash``."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import cloudpickle
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

import scanopt_cli as so
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.written import Written, marked
from support.command_line import run, scanopt
from support.graph_building import graph_of, power, scan


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with graph files: nested, and three alike but for a name and for a gradient."""
    folder = tmp_path_factory.mktemp("more")
    x, v, y = pt.dscalar("x"), pt.dvector("v"), pt.dscalar("y")

    def row(y):
        return scan(lambda z: z * 2, outputs_info=[y], n_steps=3, name="elements")[-1]

    rows = scan(row, outputs_info=[x], n_steps=4, name="rows")[-1]
    layer = OpFromGraph([x], [rows], name="layer")
    graphs = {
        "nested": graph_of(layer(v[0]) + layer(v[1]), rows),
        "renamed": graph_of(power(name="another")[1][-1]),
        "plain": graph_of(OpFromGraph([x], [x * 2])(y)),
        "inlined": graph_of(OpFromGraph([x], [x * 2], inline=True)(y)),
    }
    for name, graph in graphs.items():
        so.save(graph, folder / f"{name}.pkl")
    return folder


def test_one_line_a_file(files: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "power.pkl.gz"
    zipped.write_bytes(gzip.compress((files / "power.pkl").read_bytes()))
    paths = [files / "power.pkl", files / "clean.pkl", zipped]
    done = scanopt("hash", *paths, files / "power.pkl")  # each once
    assert (done.code, done.err) == (0, "")
    assert done.out == "".join(f"{so.digest(so.load(path))}  {path}\n" for path in paths)
    told = [line.split("  ")[0] for line in done.out.splitlines()]
    assert told[0] == told[2] != told[1]


def test_a_long_path_stays_on_its_line(files: Path, tmp_path: Path) -> None:
    path = tmp_path / f"{'a' * 150} [red]\n.pkl"
    shutil.copy(files / "power.pkl", path)
    (line,) = scanopt("hash", path, COLUMNS="40").out.splitlines()
    assert line.endswith("a [red]\\n.pkl")


def test_inner(more: Path) -> None:
    done = scanopt("hash", "--inner", more / "nested.pkl", more / "plain.pkl")
    assert done.code == 0
    cut = len(so.digest(so.load(more / "plain.pkl")))
    lines = [(line.lstrip(), len(line) - len(line.lstrip())) for line in done.out.splitlines()]
    told = [f"{indent} {line[cut:]}" for line, indent in lines]
    loops = ["2   3x Scan rows", "4   3x Scan elements", "2   2x OpFromGraph layer"]
    assert told[0] == f"0   {more / 'nested.pkl'}"
    assert sorted(told[1:4]) == sorted(loops)
    assert told.index(loops[1]) == told.index(loops[0]) + 1
    assert told[4:] == [f"0   {more / 'plain.pkl'}", "2   1x OpFromGraph"]


def test_many_names_of_one_body_are_cut_short(tmp_path: Path) -> None:
    x = pt.dscalar("x")
    loops = [
        scan(lambda y: y * 2, outputs_info=[x + i], n_steps=3, name=f"loop{i}") for i in range(6)
    ]
    so.save(graph_of(*loops), tmp_path / "loops.pkl")
    done = scanopt("hash", tmp_path / "loops.pkl", "--inner")
    assert done.out.endswith("  6x Scan loop0, loop1, loop2, loop3 and 2 more\n")


def test_bodies_are_listed_with_the_lines_that_wrote_them(tmp_path: Path) -> None:
    start = pt.dscalar("x")
    doubled = [
        scan(lambda y: y * 2, outputs_info=[start], n_steps=n, name="double") for n in (2, 3)
    ]
    graph = graph_of(*doubled)
    loops = [node for node in graph.fgraph.toposort() if is_loop(node)]
    for node, line in zip(loops, (5, 7), strict=True):
        node.op = marked(node.op, Written("my [model].py", line, "build"))
    so.save(graph, tmp_path / "loops.pkl")
    done = scanopt("hash", tmp_path / "loops.pkl", "--inner")
    places = "my [model].py:5 in build, my [model].py:7 in build"
    assert done.out.endswith(f"  2x Scan double ({places})\n")
    told = json.loads(scanopt("hash", tmp_path / "loops.pkl", "--inner", "--format", "json").out)
    assert told["graphs"][0]["inner"][0]["places"] == places.split(", ")


@pytest.mark.parametrize("option", ["--names", "--gradients"])
def test_degrees(files: Path, more: Path, option: str) -> None:
    pair = {
        "--names": [files / "power.pkl", more / "renamed.pkl"],
        "--gradients": [more / "plain.pkl", more / "inlined.pkl"],
    }[option]
    assert len({so.digest(so.load(path)) for path in pair}) == 1
    told = [line.split()[0] for line in scanopt("hash", *pair, option).out.splitlines()]
    assert told[0] != told[1]
    notion = {option.removeprefix("--"): True}
    assert told == [so.digest(so.load(path), **notion) for path in pair]


def test_json(more: Path, files: Path) -> None:
    paths = [more / "nested.pkl", files / "none.pkl", files / "power.pkl"]
    done = scanopt("hash", *paths, "--format", "json", "--inner", "--names")
    assert done.code == 2
    told = json.loads(done.out)
    assert (told["schema"], told["command"]) == (5, "hash")
    assert (told["names"], told["gradients"]) == (True, False)
    nested, missing, square = told["graphs"]
    assert (missing["source"], "no such file" in missing["error"]) == (str(paths[1]), True)
    assert (nested["source"], nested["opaque"]) == (str(paths[0]), [])
    assert nested["digest"] == so.digest(so.load(paths[0]), names=True)
    assert {tuple(body["names"]): (body["depth"], body["times"]) for body in nested["inner"]} == {
        ("rows",): (0, 3),
        ("elements",): (1, 3),
        ("layer",): (0, 2),
    }
    assert [body["kind"] for body in square["inner"]] == ["Scan"]
    alone = json.loads(scanopt("hash", paths[2], "--format", "json").out)
    assert [graph["inner"] for graph in alone["graphs"]] == [None]


def test_markdown(more: Path) -> None:
    done = scanopt("hash", more / "nested.pkl", "--inner", "--format", "markdown")
    indents = [len(line) - len(line.lstrip()) for line in done.out.splitlines()]
    assert indents == [0, 2, 4, 2]
    assert done.out.startswith(f"- `{so.digest(so.load(more / 'nested.pkl'))}`  **")


def test_broken_files_among_others(files: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pkl"
    bad.write_bytes(b"not a pickle")
    hostile = tmp_path / "hostile.pkl"
    hostile.write_bytes(b"cposix\nsystem\n(S'true'\ntR.")
    good = [files / "power.pkl", files / "clean.pkl"]
    done = scanopt("hash", bad, good[0], hostile, tmp_path, good[1], tmp_path / "none.pkl")
    assert done.code == 2
    assert done.out == scanopt("hash", *good).out
    *errors, summary = done.err.splitlines()
    for path, line in zip([bad, hostile, tmp_path / "none.pkl"], errors, strict=True):
        assert line.startswith(f"scanopt: error: {path}: ")
    assert summary == "scanopt: 3 of 5 graphs failed"


def test_mistakes(files: Path, tmp_path: Path) -> None:
    cases: list[list[str | Path]] = [
        [],
        [tmp_path / "none.pkl"],
        [files / "power.pkl", "--format", "yaml"],
        [files / "power.pkl", "--nonsense"],
    ]
    for arguments in cases:
        done = scanopt("hash", *arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
        assert done.err.startswith("scanopt: error: ")


def test_what_cannot_be_told_by_value_is_noted(tmp_path: Path) -> None:
    x, y = pt.dscalars("x", "y")
    closure = OpFromGraph([x], [x * 2], pullback=lambda inputs, outputs, gradients: gradients)
    path = tmp_path / "closure.pkl"
    path.write_bytes(cloudpickle.dumps(([y], [closure(y)])))
    done = scanopt("hash", path, "--trust")
    assert (done.code, done.err) == (0, "")
    noted = scanopt("hash", path, "--trust", "--gradients")
    assert (noted.code, noted.err.count("\n")) == (0, 1)
    assert noted.err.startswith(f"scanopt: note: {path}: ")
    assert "this process only" in noted.err
    (told,) = json.loads(scanopt("hash", path, "--trust", "--gradients", "--format", "json").out)[
        "graphs"
    ]
    assert "lambda" in told["opaque"][0]
    assert told["digest"] not in noted.out


def test_help_does_not_import_pytensor() -> None:
    code = (
        "import sys; from scanopt_cli.cli.app import run; code = run(['hash', '--help']);"
        "sys.exit(code or 'pytensor' in sys.modules or 'numpy' in sys.modules)"
    )
    done = run([sys.executable, "-c", code], None, {})
    assert (done.code, "--inner" in done.out) == (0, True)
