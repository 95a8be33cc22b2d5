"""``scanopt audit`` of many files."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from support.command_line import scanopt


class _Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("this ran",)


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    """Two graphs, a pickle that would run code, and a file that is none."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    shutil.copy(files / "power.pkl", folder / "a.pkl")
    shutil.copy(files / "grad.pkl", folder / "d.pkl")
    (folder / "b.pkl").write_bytes(pickle.dumps(_Hostile()))
    (folder / "c.pkl").write_bytes(b"no pickle")
    return folder


def test_what_would_be_refused_is_shown(folder: Path) -> None:
    done = scanopt("audit", "downloads", cwd=folder.parent)
    assert done.code == 2
    assert "this ran" not in done.out
    assert "downloads/a.pkl: would be loaded" in done.out
    assert "would be refused: downloads/b.pkl" in done.out
    assert "builtins" in done.out
    assert "pytensor" not in done.out  # what would be loaded is counted alone
    assert done.out.endswith("2 of 3 files would be loaded\n")
    assert "downloads/c.pkl" in done.err
    (folder / "c.pkl").unlink()
    assert scanopt("audit", "downloads", cwd=folder.parent).code == 1
    (folder / "b.pkl").unlink()
    assert scanopt("audit", "downloads", "-j", "2", cwd=folder.parent).code == 0


def test_json_has_an_entry_for_each(folder: Path) -> None:
    whole = json.loads(scanopt("audit", "downloads", "--format", "json", cwd=folder.parent).out)
    lines = scanopt("audit", "downloads", "--format", "jsonl", cwd=folder.parent).out.splitlines()
    for entries in (whole["graphs"], [json.loads(line) for line in lines]):
        assert [one["source"] for one in entries] == [f"downloads/{x}.pkl" for x in "abcd"]
        assert ["error" in one for one in entries] == [False, False, True, False]
        assert ["refusal" in one and one["refusal"] is None for one in entries] == [
            *(True, False),
            *(False, True),
        ]


def test_json_of_one_file_is_one_object(folder: Path) -> None:
    done = scanopt("audit", "a.pkl", "--format", "json", cwd=folder)
    assert json.loads(done.out)["path"] == "a.pkl"


def test_all_is_shown_of_one_file(folder: Path) -> None:
    assert "pytensor.scan.op" in scanopt("audit", "a.pkl", cwd=folder).out
