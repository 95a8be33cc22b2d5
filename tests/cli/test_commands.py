"""The other commands, each with its exit codes."""

from __future__ import annotations

import json
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytensor
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli import __version__
from scanopt_cli.__main__ import main
from scanopt_cli.serialization.loading import load
from support.command_line import process, run, scanopt
from support.graph_building import graph_of, scan
from support.tiers import deep


def test_help_and_version() -> None:
    assert scanopt("--version").out == f"scanopt {__version__}\n"
    assert scanopt("-h").code == 0
    for command in (
        "optimize",
        "diff",
        "grad",
        "hash",
        "inspect",
        "view",
        "python",
        "verify",
        "bench",
        "bisect",
        "reduce",
        "trace",
        "nan",
        "check",
        "lock",
        "status",
        "rules",
        "passes",
        "explain",
        "audit",
        "convert",
        "cache",
        "capture",
    ):
        done = scanopt(command, "--help")
        assert done.code == 0
        assert "Usage" in done.out
        assert "<bool>" not in done.out
        assert "list[" not in done.out


@pytest.mark.parametrize("arguments", ["--help", *deep("passes --help", "--version")])
def test_help_does_not_import_pytensor(arguments: str) -> None:
    code = (
        "import sys; from scanopt_cli.cli.app import run;"
        f"run({arguments.split()!r});"
        "sys.exit('pytensor' in sys.modules or 'numpy' in sys.modules)"
    )
    import sys

    assert run([sys.executable, "-c", code], None, {}).code == 0


def test_diff_of_equal_and_of_different_graphs(files: Path) -> None:
    same = scanopt("diff", files / "power.pkl", files / "power.pkl")
    assert (same.code, len(same.out.splitlines())) == (0, 1)
    other = scanopt("diff", files / "wasteful.pkl", files / "off.pkl")
    assert other.code == 1
    assert "[id" not in other.out
    told = json.loads(
        scanopt("diff", files / "wasteful.pkl", files / "off.pkl", "--format", "json").out
    )
    assert (told["command"], told["same"]) == ("diff", False)
    assert told["changes"]
    assert scanopt("diff", files / "power.pkl", files / "none.pkl").code == 2


def test_diff_for_github(files: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    done = scanopt(
        "diff",
        files / "wasteful.pkl",
        files / "off.pkl",
        "--format",
        "github",
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert done.code == 1
    assert done.out.startswith("::")
    assert summary.read_text().startswith("before\n")
    assert len(summary.read_text()) > len("before\n")


def test_budget_names_the_scan(files: Path, tmp_path: Path) -> None:
    graph = files / "grad.pkl"
    within = scanopt("diff", graph, graph, "--budget", "scans=2,mit_mot=1")
    assert within.code == 0
    over = scanopt("diff", graph, graph, "--budget", "scans=2,mit_mot=0")
    assert over.code == 1
    assert "grad_of_square" in over.out
    assert scanopt("diff", graph, graph, "--budget", "ovens=1").code == 2
    (tmp_path / "pyproject.toml").write_text("[tool.scanopt.budget]\nmit_mot = 0\n")
    assert scanopt("diff", graph, graph, cwd=tmp_path).code == 1
    (tmp_path / "pyproject.toml").write_text("[tool.scanopt.budget]\nmit_mot = 'none'\n")
    assert scanopt("diff", graph, graph, cwd=tmp_path).code == 2


@pytest.mark.parametrize("columns", ["80", "9" * 20, *deep("200")])
def test_inspect(files: Path, columns: str) -> None:
    done = scanopt("inspect", files / "grad.pkl", COLUMNS=columns)
    assert done.code == 0
    assert "Scan grad_of_square: 4 steps" in done.out
    assert "mit_mot" in done.out
    assert max(map(len, done.out.splitlines())) <= min(int(columns), 10_000)
    told = json.loads(scanopt("inspect", files / "grad.pkl", "--format", "json").out)
    assert [item["name"] for item in told["scans"]] == ["square", "grad_of_square"]
    assert told["bytes"] == "80"
    first = told["scans"][0]
    assert (first["bytes"], first["step"]["numbers"], first["occurrences"]) == ("40", 1, 1)
    assert len(first["digest"]) == 32
    assert (first["slots"][0]["dtype"], first["slots"][0]["shape"]) == ("float64", [])
    assert "| kind |" in scanopt("inspect", files / "grad.pkl", "--format", "markdown").out


def test_inspect_one_loop(files: Path) -> None:
    graph = files / "grad.pkl"
    told = json.loads(scanopt("inspect", graph, "--loop", "square", "--format", "json").out)
    assert [item["name"] for item in told["scans"]] == ["square"]
    done = scanopt("inspect", graph, "--loop", "grad_of_square")
    assert done.out.startswith("Scan grad_of_square: 4 steps")
    assert "Scan square:" not in done.out
    unknown = scanopt("inspect", graph, "--loop", "cube")
    assert (unknown.code, unknown.out) == (2, "")
    assert "--loop: there is no loop 'cube'; loops: square, grad_of_square" in unknown.err
    assert unknown.err.count("\n") == 1
    assert scanopt("inspect", graph, "--depth", "0").code == 2
    assert scanopt("inspect", graph, "--depth", "1").out == scanopt("inspect", graph).out


class _Interrupting(MetaPathFinder):
    """Stands in for a user who presses Ctrl-C while a module is imported."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "scanopt_cli.cli.app":
            raise KeyboardInterrupt


def test_an_interrupt_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "scanopt_cli.cli.app")
    monkeypatch.setattr(sys, "meta_path", [_Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 130


@pytest.mark.usefixtures("evaluated_here")
def test_verify(files: Path) -> None:
    assert scanopt("verify", files / "power.pkl", files / "power.pkl").code == 0
    differs = scanopt("verify", files / "wasteful.pkl", files / "off.pkl", "--runs", "2")
    assert differs.code == 1
    assert "off by 0.001" in " ".join(differs.out.split())
    assert scanopt("verify", files / "power.pkl", files / "missing.pkl").code == 2
    told = json.loads(
        scanopt("verify", files / "power.pkl", files / "power.pkl", "--format", "json").out
    )
    assert told["verdict"] == "identical"


@pytest.mark.usefixtures("evaluated_here")
def test_verify_names_the_command_that_finds_the_place(tmp_path: Path) -> None:
    """The step of a loop, or the rewrite of PyTensor's; both commands find something."""
    v, x = pt.dvector("v"), pt.dscalar("x")

    def summed(factor: float) -> Any:
        return graph_of(scan(lambda a, y: y + factor * a, sequences=[v], outputs_info=[x])[-1])

    is_large = pt.gt(abs(x), 0.001)
    graphs = {
        "a": summed(1.0),
        "b": summed(1.5),
        "switch": graph_of(pt.switch(is_large, 0, 2).astype("int8")),
        "booleans": graph_of((1 - is_large) + (1 - is_large)),
    }
    for name, graph in graphs.items():
        so.save(graph, tmp_path / f"{name}.pkl")
    for pair, options, wanted in (
        (("a", "b"), ("--mode", "plain"), "scanopt trace --between a.pkl b.pkl --seed 3"),
        (("switch", "booleans"), ("--mode", "vm"), "scanopt bisect booleans.pkl -p none --mode vm"),
    ):
        files = [f"{name}.pkl" for name in pair]
        done = scanopt("verify", *files, *options, "--seed", "3", cwd=tmp_path)
        assert done.code == 1
        told = " ".join(done.err.split())
        assert told == f"scanopt: where they begin to differ: {wanted}"
        assert scanopt(*wanted.split()[1:], cwd=tmp_path).code == 1


@pytest.mark.usefixtures("evaluated_here")
def test_twin_verify_names_no_command(files: Path) -> None:
    """There is no loop that differs, or nothing does."""
    done = scanopt("verify", files / "wasteful.pkl", files / "wasteful.pkl", "--mode", "plain")
    assert (done.code, done.err) == (0, "")
    x = pt.dscalar("x")
    for name, output in (("a", x + 1), ("b", x + 2)):
        so.save(graph_of(output), files / f"{name}_differs.pkl")
    done = scanopt("verify", files / "a_differs.pkl", files / "b_differs.pkl", "--mode", "plain")
    assert (done.code, done.err) == (1, "")


def test_a_preset_lists_its_passes() -> None:
    done = scanopt("passes", "default", "--format", "json")
    names = [item["name"] for item in json.loads(done.out)["passes"]]
    assert names[:2] == ["merge-equal", "clean-ofg"]
    assert len(names) == len(set(names))
    assert scanopt("passes", "default").code == 0


def test_a_preset_without_passes_says_so() -> None:
    for output_format in ("rich", "markdown"):
        assert (
            scanopt("passes", "none", "--format", output_format).out == "no passes are selected\n"
        )
    assert json.loads(scanopt("passes", "none", "--format", "json").out)["passes"] == []


@pytest.mark.usefixtures("evaluated_here")
def test_verify_tells_where_in_markdown(files: Path) -> None:
    pair = (files / "wasteful.pkl", files / "off.pkl")
    done = scanopt("verify", *pair, "--mode", "plain", "--format", "markdown")
    assert (done.code, "- run 0" in done.out) == (1, True)


def test_passes(files: Path) -> None:
    listed = scanopt("passes").out
    assert all(name in listed for name in ("remove-unused", "save-mem", "prealloc=true", "default"))
    assert "Out of scope" in scanopt("passes", "save-mem").out
    for name in ("compile-safe", "hoist-states"):
        assert f"PyTensor {pytensor.__version__}" in scanopt("passes", name).out
    assert scanopt("passes", "nonsense").code == 2
    told = json.loads(scanopt("passes", "--format", "json").out)
    assert told["passes"][0]["name"] == "merge-equal"


def test_audit(files: Path, tmp_path: Path) -> None:
    assert scanopt("audit", files / "power.pkl").code == 0
    hostile = tmp_path / "hostile.pkl"
    hostile.write_bytes(b"cposix\nsystem\n(S'true'\ntR.")
    done = scanopt("audit", hostile)
    assert done.code == 1
    assert "posix" in done.out
    assert scanopt("audit", tmp_path / "missing.pkl").code == 2


def test_capture(tmp_path: Path) -> None:
    import sys

    script = tmp_path / "model.py"
    script.write_text(
        "import sys, pytensor, pytensor.tensor as pt\n"
        "from pytensor.scan.basic import scan\n"
        "x = pt.dscalar('x')\n"
        "ys = scan(lambda y: y * 2, outputs_info=[x], n_steps=3, return_updates=False)\n"
        "print(pytensor.function([x], ys[-1])(1.5))\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    folder = tmp_path / "kept"
    done = process("capture", "-o", folder, "--", sys.executable, script, "3")
    assert (done.code, done.out) == (3, "12.0\n")
    (graph,) = folder.glob("*.scanopt")
    assert load(graph).recorded == ((1.5,),)
    assert "kept 1 graph in" in done.err
    (entry,) = json.loads((folder / "index.json").read_text())["graphs"]
    assert (entry["file"], entry["script"], entry["line"]) == (graph.name, str(script), 5)
    few = ("capture", "-o", tmp_path / "few", "--on-slow", "1000", "--on-error")
    done = process(*few, "--", sys.executable, script, "0")
    assert (done.code, done.out) == (0, "12.0\n")
    assert "no graph with a Scan that is slow or raises an error" in " ".join(done.err.split())
    assert list((tmp_path / "few").iterdir()) == []


def test_a_captured_program_that_fails_is_told_first(tmp_path: Path) -> None:
    """That it compiled no graph is no news of a program that did not come to it."""
    script = tmp_path / "program.py"
    script.write_text(
        "import os, signal, pytensor, pytensor.tensor as pt\n"
        "x = pt.dscalar('x')\n"
        "ys = pytensor.scan(lambda y: y * 2, outputs_info=[x], n_steps=3, return_updates=False)\n"
        "pytensor.function([x], ys)\n"
        "raise ValueError('of the program')\n"
    )
    done = process("capture", "-o", tmp_path / "graphs", "--", sys.executable, script)
    told = " ".join(done.err.split())
    kept = f"until then, kept 1 graph in {tmp_path / 'graphs'}"
    assert done.code == 1
    assert told.endswith(
        f"ValueError: of the program scanopt: the program ended with exit code 1 scanopt: {kept}"
    )
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    done = process("capture", "-o", tmp_path / "none", "--", sys.executable, script)
    assert (done.code, " ".join(done.err.split())) == (
        143,
        "scanopt: the program was ended by SIGTERM, with exit code 143 "
        "scanopt: until then, compiled no graph with a Scan",
    )


def test_traceback_only_with_debug(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pkl"
    plain = scanopt("inspect", missing)
    assert (plain.code, plain.err.count("\n")) == (2, 1)
    debugged = scanopt("inspect", missing, "--debug")
    assert (debugged.code, "Traceback" in debugged.err) == (2, True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"\x7fELF\x02",
        b"PK\x03\x04",
        b"\x1f\x8b\x08\x00broken",
        b"\x80\x05\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x80\x04N.",
        b"\x80\x04K\x07.",
        b"cposix\nsystem\n(S'true'\ntR.",
    ],
)
def test_bad_files_give_one_line(tmp_path: Path, content: bytes) -> None:
    bad = tmp_path / "bad.pkl"
    bad.write_bytes(content)
    done = scanopt("inspect", bad)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert str(bad) in done.err


def test_directory_is_no_graph(tmp_path: Path) -> None:
    done = scanopt("inspect", tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)


TEXTS = ("fed_by", "inside")


def test_json_has_what_the_screen_leaves_out(tmp_path: Path) -> None:
    """30 loops, of which 11 rows are shown, and names that are cut in a table."""
    x, start = pt.dvector("x" * 200), pt.dscalar("start")
    loops = [
        scan(lambda a, s, i=i: pt.tanh(a) * (i + 2) + s, sequences=[x], outputs_info=[start])[-1]
        for i in range(30)
    ]
    so.save(graph_of(*loops), tmp_path / "many.pkl")
    done = scanopt("inspect", tmp_path / "many.pkl")
    assert "19 more distinct loops; --format json has all" in done.out
    told = json.loads(scanopt("inspect", tmp_path / "many.pkl", "--format", "json").out)
    assert len(told["scans"]) == 30
    texts = [slot[field] for each in told["scans"] for slot in each["slots"] for field in TEXTS]
    assert any(text.startswith("x" * 200) for text in texts)
    assert not any(text.endswith("…") for text in texts)
