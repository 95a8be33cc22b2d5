"""A file is written whole or not at all, and what a killed process left is cleared by the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scanopt_cli.serialization import writing
from scanopt_cli.serialization.writing import write_atomically

fcntl = pytest.importorskip("fcntl", reason="locks that end with a process")

WRITER = """
import os, signal, sys
from pathlib import Path
from scanopt_cli.serialization.writing import write_atomically

target = Path(sys.argv[1])

def killed(_):
    os.kill(os.getpid(), signal.SIGKILL)

def waiting(_):
    target.with_name("ready").touch()
    sys.stdin.readline()

os.fsync = globals()[sys.argv[2]]
write_atomically(target, b"first")
"""
HEX = "0123456789abcdef" * 2


def killed_while_it_writes(target: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITER, str(target), "killed"], check=False)
    assert done.returncode == -signal.SIGKILL


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def while_writing(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Let ``action`` happen once, when a file is written, before it takes its place."""
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        action()

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("following", ["out.pkl", "other.pkl"])
def test_the_next_to_write_clears_what_a_killed_process_left(
    following: str, tmp_path: Path
) -> None:
    target = tmp_path / "out.pkl"
    killed_while_it_writes(target)
    (left,) = names(tmp_path)
    assert left.startswith(".out.pkl.")
    write_atomically(tmp_path / following, b"new")
    assert names(tmp_path) == {following}
    assert (tmp_path / following).read_bytes() == b"new"


def test_what_another_is_writing_is_not_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock is that of whoever opened the file, so a second writer here is like a process."""
    target = tmp_path / "out.pkl"
    while_writing(monkeypatch, lambda: write_atomically(target, b"second"))
    write_atomically(target, b"first")
    assert names(tmp_path) == {"out.pkl"}
    assert target.read_bytes() == b"first"


@pytest.mark.deep
def test_what_another_process_is_writing_is_not_cleared(tmp_path: Path) -> None:
    target, ready = tmp_path / "out.pkl", tmp_path / "ready"
    command = [sys.executable, "-c", WRITER, str(target), "waiting"]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE)
    while not ready.exists():
        time.sleep(0.05)
    write_atomically(target, b"new")
    assert len(names(tmp_path)) == 3
    writer.communicate(b"\n")
    assert (writer.returncode, names(tmp_path)) == (0, {"out.pkl", "ready"})
    assert target.read_bytes() == b"first"


def test_a_writer_whose_file_is_cleared_before_it_is_locked_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, cleared = writing._lock, []

    def late(descriptor: int, *, waits: bool) -> bool | None:
        if waits and not cleared:
            cleared.extend(tmp_path.iterdir())
            cleared[0].unlink()
        return lock(descriptor, waits=waits)

    monkeypatch.setattr(writing, "_lock", late)
    write_atomically(tmp_path / "out.pkl", b"new")
    assert len(cleared) == 1
    assert names(tmp_path) == {"out.pkl"}


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    while_writing(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "out.pkl", b"new")
    assert names(tmp_path) == set()


def test_files_of_others_stay(tmp_path: Path) -> None:
    kept = {
        f".other.pkl.{HEX}",
        f".out.pkl.{HEX[1:]}",
        f".other.scanopt.{HEX}.scanopt",
        f"out.pkl.{HEX}.scratch",
        ".out.pkl.scratch",
    }
    earlier = (f".out.pkl.{HEX}", f".out.pkl.{HEX}.scratch")
    for name in (*kept, *earlier, f".other.pkl.{HEX}.scratch"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / f".pipe.{HEX}.scratch")
    (tmp_path / f".folder.{HEX}.scratch").mkdir()
    write_atomically(tmp_path / "out.pkl", b"new")
    # Of this target, files that earlier versions left are known by their names as well.
    assert names(tmp_path) == {*kept, f".folder.{HEX}.scratch", "out.pkl"}


def test_without_locks_only_what_is_old_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", without)
    old, young = (tmp_path / f".{name}.{HEX}.scratch" for name in ("old", "young"))
    for path in (old, young):
        path.touch()
    os.utime(old, (0, 0))
    write_atomically(tmp_path / "out.pkl", b"new")
    assert names(tmp_path) == {young.name, "out.pkl"}


def test_a_long_name_leaves_room_for_that_of_the_scratch_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("x" * 250), b"new")
    assert names(tmp_path) == {"x" * 250}
