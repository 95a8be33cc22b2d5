"""Lock files: what is written is read, merges well, and what is none is refused in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scanopt_cli.errors import ScanoptError
from scanopt_cli.gates import lock_file
from scanopt_cli.gates.lock_file import (
    Lock,
    LockedFinding,
    LockedGraph,
    find_lock,
    read_lock,
    write_lock,
)
from support.git import commit, git, repository
from support.pages import ROOT

SCHEMA = json.loads((ROOT / "docs" / "reference" / "lock.schema.json").read_text())
FINDING = LockedFinding(rule="P001", loop="a/b", place="model.py:3 in f", key="P001:12:1")


def graph(**changes: Any) -> LockedGraph:
    known: dict[str, Any] = {
        "digest": "0" * 32,
        "sha256": "f" * 64,
        "by": "scanopt 1",
        "counts": {"scans": 2},
        "findings": (FINDING,),
    }
    return LockedGraph(**{**known, **changes})


def table(**changes: Any) -> dict[str, Any]:
    """What a lock file holds as JSON, with one graph, which the changes are of."""
    entry = {
        "digest": "0" * 32,
        "sha256": "f" * 64,
        "by": "scanopt 1",
        "counts": {"scans": 2},
        "findings": [{"rule": "P001", "loop": "a", "place": None, "key": "k"}],
    }
    graphs = {"a.pkl": {**entry, **changes}}
    return {"format": "scanopt-lock", "version": 1, "directories": [], "graphs": graphs}


def refused(path: Path, content: object) -> str:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ScanoptError) as caught:
        read_lock(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 1_000
    return message


texts = st.text(max_size=20)
numbers = st.dictionaries(
    st.from_regex(r"[a-z_]{1,10}", fullmatch=True), st.integers(0, 2**62), max_size=3
)
graphs = st.builds(
    graph,
    digest=st.none() | st.from_regex(r"[0-9a-f]{32}", fullmatch=True),
    by=texts,
    counts=numbers,
    budget=numbers,
    findings=st.lists(
        st.builds(LockedFinding, rule=texts, loop=texts, place=st.none() | texts, key=texts),
        max_size=3,
    ).map(tuple),
)
names = st.text("ab é.\n\"'[*", min_size=1, max_size=8).filter(lock_file._is_inside)


@given(st.dictionaries(names, graphs, max_size=4), st.sets(names, max_size=2))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, held: dict[str, LockedGraph], folders: set[str]
) -> None:
    path = tmp_path_factory.mktemp("lock") / "scanopt.lock"
    lock = Lock(path, held, tuple(sorted(folders)))
    write_lock(lock)
    assert read_lock(path) == lock
    written = path.read_bytes()
    jsonschema.validate(json.loads(written), SCHEMA)
    write_lock(read_lock(path))
    assert path.read_bytes() == written


def test_a_graph_is_a_block_and_a_finding_a_line(tmp_path: Path) -> None:
    path = tmp_path / "scanopt.lock"
    write_lock(Lock(path, {"b.pkl": graph(), "a.pkl": graph(findings=(FINDING, FINDING))}))
    lines = path.read_text().splitlines()
    places = [place for place, line in enumerate(lines) if "pkl" in line]
    assert [lines[place] for place in places] == ['  "a.pkl": {', '  "b.pkl": {']
    assert sum("P001:12:1" in line for line in lines) == 3


def test_git_merges_what_two_branches_locked(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repository")
    path = folder / "scanopt.lock"
    held = {f"{name}.pkl": graph() for name in "aceg"}
    write_lock(Lock(path, held))
    commit(folder)
    git(folder, "checkout", "-qb", "other")
    write_lock(Lock(path, {**held, "b.pkl": graph()}))
    commit(folder)
    git(folder, "checkout", "-q", "main")
    both = {**held, "f.pkl": graph(), "a.pkl": graph(counts={"scans": 3})}
    write_lock(Lock(path, both))
    commit(folder)
    git(folder, "merge", "-q", "--no-edit", "other")
    assert read_lock(path).graphs == {**both, "b.pkl": graph()}


def test_a_merge_that_is_not_finished_is_named(tmp_path: Path) -> None:
    text = '{\n<<<<<<< HEAD\n "a": 1\n=======\n "a": 2\n>>>>>>> other\n}'
    assert "merge that is not finished" in refused(tmp_path / "scanopt.lock", text)


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", "nothing", "{" * 9_000, "[" * 100_000, b"\xff\xfe", b"\0" * 100),
        *('{"format": "another"}', "null", '"scanopt-lock"', "1" * 10_000),
    ],
)
def test_what_is_no_lock_file(content: str | bytes, tmp_path: Path) -> None:
    assert "is no lock file" in refused(tmp_path / "scanopt.lock", content)


def test_a_baseline_of_an_earlier_version_is_named(tmp_path: Path) -> None:
    earlier = {"schema": 1, "findings": {"P001:1": 2}}
    assert "scanopt lock" in refused(tmp_path / "known.json", earlier)


def test_a_later_version_is_named(tmp_path: Path) -> None:
    later = {**table(), "version": 2, "more": {}}
    message = refused(tmp_path / "scanopt.lock", later)
    assert "later version of scanopt" in message
    assert "update scanopt" in message


@pytest.mark.parametrize("version", [0, -1, "1", None, 1.5, True, [1]])
def test_other_versions_are_damage(version: object, tmp_path: Path) -> None:
    if version is not True:  # which is 1
        assert "damaged" in refused(tmp_path / "scanopt.lock", {**table(), "version": version})


@pytest.mark.parametrize(
    "changes",
    [
        *({"digest": "0" * 31}, {"digest": 1}, {"digest": "G" * 32}, {"sha256": None}),
        *({"sha256": "f" * 63}, {"by": 3}, {"by": "x" * 5_000}, {"counts": []}, {"budget": 1}),
        *({"counts": {"scans": -1}}, {"counts": {"scans": 1.5}}, {"counts": {"scans": True}}),
        *({"counts": {"scans": 2**63}}, {"counts": {"SCANS": 1}}, {"counts": {"": 1}}),
        *({"findings": {}}, {"findings": [1]}, {"findings": [{}]}, {"more": 1}),
        {"findings": [{"rule": 1, "loop": "a", "place": None, "key": "k"}]},
        {"findings": [{"rule": "P001", "loop": "a", "place": None, "key": "k", "more": 1}]},
        {"findings": [{"rule": "P001", "loop": "a", "place": 7, "key": "k"}]},
    ],
)
def test_damaged_entries_are_named(changes: dict[str, Any], tmp_path: Path) -> None:
    message = refused(tmp_path / "scanopt.lock", table(**changes))
    assert "is damaged" in message
    assert "a.pkl" in message


@pytest.mark.parametrize("entry", ["format", "version", "directories", "graphs"])
def test_missing_entries(entry: str, tmp_path: Path) -> None:
    damaged = {key: value for key, value in table().items() if key != entry}
    refused(tmp_path / "scanopt.lock", damaged)
    assert "damaged" in refused(tmp_path / "scanopt.lock", {**table(), "more": 1})


OUTSIDE = [
    *("../a.pkl", "/etc/passwd", "a/../../b.pkl", "..", "", "a//b.pkl", "./a.pkl", "a/", "a\0.pkl"),
    *("C:\\a.pkl", "C:a.pkl", "a\\..\\..\\b.pkl", "\\\\host\\share\\a.pkl", "~/../a" + "x" * 5_000),
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_stay_inside(name: str, tmp_path: Path) -> None:
    hostile = table()
    hostile["graphs"][name] = hostile["graphs"]["a.pkl"]
    assert "is no path inside" in refused(tmp_path / "scanopt.lock", hostile)
    assert "is no path inside" in refused(
        tmp_path / "scanopt.lock", {**table(), "directories": [name]}
    )


def test_links_do_not_lead_outside(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "a.pkl").write_bytes(b"")
    (folder / "link.pkl").symlink_to("../a.pkl")
    (folder / "up").symlink_to("..")
    lock = Lock(folder / "scanopt.lock")
    for name in ("link.pkl", "up/a.pkl", "up"):
        with pytest.raises(ScanoptError, match="where the lock file is"):
            lock.path_of(name)


def test_names_are_relative_to_the_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graphs" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "graphs")
    (tmp_path / "scanopt.lock").write_text("")
    assert find_lock() == Path("../scanopt.lock")
    lock = Lock(Path("../scanopt.lock"))
    assert lock.name_of(Path("deep/a.pkl")) == "graphs/deep/a.pkl"
    assert os.path.samefile(lock.path_of("graphs/deep"), tmp_path / "graphs" / "deep")
    assert lock.name_of(tmp_path) == "."
    with pytest.raises(ScanoptError, match="where the lock file is"):
        lock.name_of(tmp_path.parent / "a.pkl")


def test_two_entries_of_one_name_are_named(tmp_path: Path) -> None:
    text = json.dumps(table()).replace('"a.pkl"', '"a.pkl": {}, "a.pkl"')
    assert "has two entries 'a.pkl'" in refused(tmp_path / "scanopt.lock", text)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_file, "_LARGEST", 100)
    assert "more than 100 bytes" in refused(tmp_path / "scanopt.lock", " " * 101)


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ScanoptError):
            read_lock(path)
