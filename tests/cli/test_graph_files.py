"""Which files a command takes: those named, those in directories, those that fit, those listed."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.errors import ScanoptError
from support.command_line import scanopt


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present directory, with graphs (by their names) and other files."""
    for name in (
        *("b.pkl", "a.scanopt", "a.values.npz", "index.json", "odd [1].pkl"),
        *("in/c.pkl.gz", "in/deep/d.scanopt.gz", "in/deep/notes.txt", "empty/notes.txt"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*paths: str, listed: Path | None = None) -> list[str]:
    return [path.as_posix() for path in graph_files([*map(Path, paths)], listed)]


@pytest.mark.parametrize(
    ("paths", "files"),
    [
        (["b.pkl", "a.scanopt"], ["b.pkl", "a.scanopt"]),
        (["b.pkl", "./b.pkl", "b.pkl"], ["b.pkl"]),
        (["in"], ["in/c.pkl.gz", "in/deep/d.scanopt.gz"]),
        (["in/deep", "in"], ["in/deep/d.scanopt.gz", "in/c.pkl.gz"]),
        ([".", "b.pkl"], ["a.scanopt", "b.pkl", "in/c.pkl.gz", "in/deep/d.scanopt.gz"]),
        (["*.pkl"], ["b.pkl", "odd [1].pkl"]),
        (["**/*.gz"], ["in/c.pkl.gz", "in/deep/d.scanopt.gz"]),
        (["i[mn]"], ["in/c.pkl.gz", "in/deep/d.scanopt.gz"]),
        (["odd [1].pkl"], ["odd [1].pkl"]),  # it exists, and is no pattern
        (["none.pkl", "in/deep/notes.txt"], ["none.pkl", "in/deep/notes.txt"]),
    ],
)
def test_what_is_found(paths: list[str], files: list[str], folder: Path) -> None:
    (folder / "odd [1].pkl").unlink() if paths == [".", "b.pkl"] else None
    assert found(*paths) == files


@pytest.mark.parametrize(("path", "why"), [("x*.pkl", "no file fits"), ("empty", "holds no graph")])
def test_what_holds_no_graph_is_an_error_among_others(path: str, why: str, folder: Path) -> None:
    files = graph_files([Path(path), Path("b.pkl")])
    assert files[Path("b.pkl")] is None
    assert str(files[Path(path)]).startswith(f"{path}: {why}")


@pytest.mark.skipif(sys.platform == "win32", reason="a name holds no line feed there")
@pytest.mark.parametrize("end", ["\n", "\r\n", "\0"])
def test_a_list_of_files(end: str, folder: Path) -> None:
    names = ["b.pkl", "in", "*.pkl", "", "b.pkl"]
    if end == "\0":
        names.append("two\nlines.pkl")
    (folder / "list").write_bytes(end.join(names).encode())
    files = ["a.scanopt", "b.pkl", "in/c.pkl.gz", "in/deep/d.scanopt.gz", "*.pkl"]
    assert found("a.scanopt", listed=Path("list")) == [*files, *names[5:]]


def test_a_list_on_stdin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = os.fsdecode(b"\xff.pkl")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"b.pkl\n\xff.pkl\n")))
    assert graph_files(None, Path("-")) == {Path("b.pkl"): None, Path(name): None}


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\0"])
def test_a_list_of_nothing_is_no_success(content: bytes, folder: Path) -> None:
    (folder / "list").write_bytes(content)
    with pytest.raises(ScanoptError, match="--files-from list: lists no file"):
        graph_files(None, Path("list"))


@pytest.mark.parametrize("command", ["check", "optimize", "hash", "view"])
def test_mistakes(command: str, folder: Path) -> None:
    for arguments, why in (
        ([], "GRAPH... is missing; name graphs, or list them in --files-from"),
        (["-"], "-: a graph cannot be read from stdin; --files-from - takes a list"),
        (["--files-from", "none"], "--files-from none: cannot be read: No such file"),
        (["--files-from", "-"], "--files-from -: lists no file"),
        (["b.pkl", "--jobs", "-1"], "--jobs"),
        (["b.pkl", "--jobs", "many"], "it is not a whole number"),
    ):
        done = scanopt(command, *arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
        assert why in done.err
