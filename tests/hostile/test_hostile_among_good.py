"""Hostile files among good ones, by workers: each bad one is told, and no good one suffers."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import scanopt_cli as so
from support.command_line import scanopt
from support.graph_building import graph_of, power
from support.hostile.files import FILES
from support.hostile.running import HOSTILE
from support.hostile.sharing import SHARING
from support.hostile.sizes import SIZES
from support.tiers import IS_DEEP

GOOD = 4
HUGE = ("a long text", "arrays of one buffer, zipped", "keys of one list")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a good graph before, between and behind the others."""
    folder = tmp_path / "graphs"
    folder.mkdir()
    for number in range(GOOD):
        so.save(graph_of(power()[1][-1]), folder / f"{number}.pkl")
    return folder


def test_what_is_refused_is_told_by_its_name(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    names = [*HOSTILE, *FILES, *SIZES, *SHARING] if IS_DEEP else [*list(HOSTILE)[::3], *HUGE]
    refused = {f"{number % GOOD} {name}.pkl": name for number, name in enumerate(names)}
    for file, name in refused.items():
        made = {**FILES, **SIZES, **SHARING}.get(name)
        (folder / file).write_bytes(HOSTILE[name](marker) if made is None else made())
    done = scanopt("hash", folder, "--jobs", 2)
    assert (done.code, len(done.out.splitlines())) == (2, GOOD)
    *errors, summary = done.err.splitlines()
    errors = [line for line in errors if line.startswith("scanopt: error: ")]
    assert summary == f"scanopt: {len(refused)} of {len(refused) + GOOD} graphs failed"
    for file, error in zip(sorted(refused, key=lambda name: folder / name), errors, strict=True):
        assert error.startswith(f"scanopt: error: {folder / file}: "), error
        assert "died" not in error
        assert "bug in scanopt" not in error
    assert "Traceback" not in done.err
    assert not marker.exists()


class _Calling:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def _segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.skipif(sys.platform == "win32", reason="there, exit codes are not known")
def test_what_kills_its_process_is_told_by_its_name(folder: Path, tmp_path: Path) -> None:
    """Files that the user trusts, and should not have."""
    target = tmp_path / "out"
    target.mkdir()
    for name, call in (("1 exits", _Calling(os._exit, 7)), ("2 crashes", _Calling(_segfault))):
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(call))
    words = ["--trust", "--format", "jsonl", "-o", target]
    done = scanopt("optimize", folder, *words, "--jobs", 2)
    assert done.code == 2
    errors = [line for line in done.err.splitlines() if "wrote" not in line]
    assert errors == [
        f"scanopt: error: {folder / '1 exits.pkl'}: the process that worked on it died (EXIT(7))",
        f"scanopt: error: {folder / '2 crashes.pkl'}: the process that worked on it died "
        "(SIGSEGV(-11))",
        "scanopt: 2 of 6 graphs failed",
    ]
    assert len(done.out.splitlines()) == GOOD + 2
    assert sorted(path.name for path in target.iterdir()) == [f"{n}.pkl" for n in range(GOOD)]
    assert done.err.count("wrote") == GOOD
