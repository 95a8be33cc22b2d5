"""``scanopt verify`` and ``scanopt diff`` of two directories: graphs of one name are compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from scanopt_cli.cli.graph_pairs import pairs_of_directories
from support.command_line import scanopt

VERIFY = ("verify", "before", "after", "--mode", "plain", "--runs", "2")


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    """The directories before and after: same, other and as data, each with one graph alone."""
    copies = {
        "before/same.pkl": "power",
        "after/same.pkl": "power",
        "before/deep/other.pkl": "wasteful",
        "after/deep/other.pkl": "off",
        "before/data.pkl": "clean",
        "before/gone.pkl": "grad",
        "after/new.pkl": "grad",
    }
    for target, source in copies.items():
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(files / f"{source}.pkl", tmp_path / target)
    assert scanopt("convert", "before/data.pkl", "after/data.scanopt", cwd=tmp_path).code == 0
    return tmp_path


@pytest.fixture
def both(folder: Path) -> Path:
    """The same, without those that are alone."""
    (folder / "before/gone.pkl").unlink()
    (folder / "after/new.pkl").unlink()
    return folder


def test_each_graph_is_verified_beside_that_of_its_name(both: Path) -> None:
    done = scanopt(*VERIFY, cwd=both)
    assert done.code == 1
    told = done.out.splitlines()
    assert [line.partition(": ")[0] for line in told if line.startswith("after")] == [
        "after/data.scanopt",
        "after/deep/other.pkl",
        "after/same.pkl",
    ]
    assert told[-1] == "3 graphs: 2 identical, 1 different"
    assert "scanopt trace --between before/deep/other.pkl after/deep/other.pkl" in done.err


def test_workers_say_the_same(both: Path) -> None:
    assert scanopt(*VERIFY, "-j", "2", cwd=both) == scanopt(*VERIFY, "-j", "0", cwd=both)


def test_all_the_same(both: Path) -> None:
    shutil.copy(both / "before/deep/other.pkl", both / "after/deep/other.pkl")
    done = scanopt(*VERIFY, cwd=both)
    assert (done.code, done.out.splitlines()[-1]) == (0, "3 graphs: 3 identical")


def test_what_is_alone_fails_and_stops_no_other(folder: Path) -> None:
    done = scanopt(*VERIFY, cwd=folder)
    assert done.code == 2
    assert "error: before/gone.pkl: is not in after; give it in both\n" in done.err
    assert "error: after/new.pkl: is not in before; give it in both\n" in done.err
    assert "2 of 5 graphs failed" in done.err
    assert done.out.splitlines()[-1] == "3 graphs: 2 identical, 1 different"


def test_json_has_an_entry_for_each(folder: Path) -> None:
    whole = json.loads(scanopt(*VERIFY, "--format", "json", cwd=folder).out)
    lines = scanopt(*VERIFY, "--format", "jsonl", cwd=folder).out.splitlines()
    for entries in (whole["graphs"], [json.loads(line) for line in lines]):
        assert [(one["source"], one.get("verdict")) for one in entries] == [
            ("after/data.scanopt", "identical"),
            ("after/deep/other.pkl", "differs"),
            ("before/gone.pkl", None),
            ("after/new.pkl", None),
            ("after/same.pkl", "identical"),
        ]
        assert entries[0]["reference"] == "before/data.pkl"
    assert whole["command"] == "verify"


def test_json_of_two_files_is_one_object(folder: Path) -> None:
    words = ("verify", "before/same.pkl", "after/same.pkl", "--mode", "plain", "--format")
    whole = scanopt(*words, "json", cwd=folder).out
    assert json.loads(whole)["verdict"] == "identical"
    assert "graphs" not in json.loads(whole)
    (line,) = scanopt(*words, "jsonl", cwd=folder).out.splitlines()
    assert json.loads(line)["source"] == "after/same.pkl"


def test_what_differs_between_directories(folder: Path) -> None:
    done = scanopt("diff", "before", "after", cwd=folder)
    assert done.code == 1
    told = done.out.splitlines()
    assert told[-1] == "5 graphs beside before: 1 different, 1 new, 1 gone, 2 the same"
    assert "- before/gone.pkl is in before alone" in told
    assert "+ after/new.pkl is not in before" in told
    assert "after/deep/other.pkl" in told
    entries = json.loads(scanopt("diff", "before", "after", "--format", "json", cwd=folder).out)
    assert entries["against"] == "before"
    assert [one["fate"] for one in entries["graphs"]] == ["same", "differs", "gone", "new", "same"]


def test_twin_nothing_differs(folder: Path) -> None:
    done = scanopt("diff", "before", "before", cwd=folder)
    assert (done.code, done.out) == (0, "4 graphs beside before: 4 the same\n")


@pytest.mark.parametrize("command", ["verify", "diff"])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("before", "after/same.pkl"), "before: is a directory; give two files, or two directo"),
        (("before/same.pkl", "after"), "after: is a directory; give two files, or two directo"),
        (("before", "none"), "before: is a directory"),
        (("before", "empty"), "empty: holds no graph; graphs end in .scanopt or .pkl"),
    ],
)
def test_bad_pairs_are_one_line(
    command: str, names: tuple[str, str], message: str, folder: Path
) -> None:
    (folder / "empty").mkdir()
    done = scanopt(command, *names, cwd=folder)
    assert done.code == 2
    assert f"scanopt: error: {message}" in done.err
    assert "Traceback" not in done.err


def _pairs(folder: Path, before: list[str], after: list[str]) -> list[tuple[str | None, ...]]:
    for side, names in (("before", before), ("after", after)):
        for name in names:
            file = folder / side / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    return [
        (pair.earlier and pair.earlier.path.name, pair.path.name if pair.exists else None)
        for pair in pairs_of_directories(folder / "before", folder / "after")
    ]


def test_names_that_end_otherwise_belong_together_if_they_are_alone(tmp_path: Path) -> None:
    assert _pairs(
        tmp_path,
        ["a.pkl", "b.pkl", "c.pkl", "c.pkl.gz", "d/x.pkl"],
        ["a.scanopt", "b.pkl", "b.scanopt", "c.scanopt", "e/x.pkl"],
    ) == [
        ("a.pkl", "a.scanopt"),
        ("b.pkl", "b.pkl"),
        (None, "b.scanopt"),
        ("c.pkl", None),
        ("c.pkl.gz", None),
        (None, "c.scanopt"),
        ("x.pkl", None),
        (None, "x.pkl"),
    ]
