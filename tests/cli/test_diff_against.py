"""``scanopt diff --against``: graph files beside what git has of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.command_line import scanopt
from support.git import commit, git, repository


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    """A repository with the graphs power, clean, wasteful and off, just committed."""
    folder = repository(tmp_path / "repository")
    (folder / "graphs").mkdir()
    for name in ("power", "clean", "wasteful", "off"):
        shutil.copy(files / f"{name}.pkl", folder / "graphs")
    commit(folder)
    return folder


@pytest.fixture
def changed(folder: Path, files: Path) -> Path:
    """The same repository: power is another graph, clean has moved, off is gone, grad is new."""
    graphs = folder / "graphs"
    shutil.copy(files / "grad.pkl", graphs / "power.pkl")
    shutil.copy(files / "grad.pkl", graphs / "grad.pkl")
    (graphs / "clean.pkl").rename(graphs / "moved.pkl")
    (graphs / "off.pkl").unlink()
    return folder


def test_nothing_has_changed(folder: Path) -> None:
    done = scanopt("diff", "--against", "main", "graphs", cwd=folder)
    assert (done.code, done.out, done.err) == (0, "4 graphs beside main: 4 the same\n", "")
    one = scanopt("diff", "--against", "main", "power.pkl", cwd=folder / "graphs")
    assert (one.code, one.out) == (0, "power.pkl is as in main\n")


def test_what_became_of_each(changed: Path) -> None:
    done = scanopt("diff", "--against", "main", "graphs", cwd=changed)
    assert done.code == 1
    told = done.out.splitlines()
    assert told[-1] == "5 graphs beside main: 1 different, 1 new, 1 gone, 1 renamed, 1 the same"
    assert "+ graphs/grad.pkl is not in main" in told
    assert "- graphs/off.pkl is in main alone" in told
    assert "~ graphs/moved.pkl is graphs/clean.pkl in main" in told
    assert any(line.startswith("1 Scan → 2: 1 new") for line in told)
    assert "wasteful" not in done.out


def test_one_file_is_told_as_a_pair_is(changed: Path, files: Path) -> None:
    for options in (["--stat"], ["--lines", "0"], ["--format", "markdown"]):
        pair = scanopt("diff", files / "power.pkl", files / "grad.pkl", *options)
        one = scanopt("diff", "graphs/power.pkl", "--against", "HEAD", *options, cwd=changed)
        assert (one.code, one.out) == (pair.code, pair.out)


def test_a_file_in_another_form_is_the_same(folder: Path) -> None:
    again = scanopt("convert", "power.pkl", "again.scanopt", cwd=folder / "graphs")
    assert again.code == 0
    (folder / "graphs" / "again.scanopt").rename(folder / "graphs" / "power.pkl")
    done = scanopt("diff", "--against", "main", "graphs", cwd=folder)
    assert (done.code, done.out) == (0, "4 graphs beside main: 4 the same\n")


def test_budgets_are_those_of_the_files(changed: Path) -> None:
    command = ["diff", "--against", "main", "graphs", "--only-budget", "--budget"]
    assert scanopt(*command, "scans=2", cwd=changed).code == 0
    over = scanopt(*command, "scans=1", cwd=changed)
    assert over.code == 1
    assert over.out.count("over budget: scans is 2, the budget is 1") == 2  # power and grad
    unchanged = scanopt(*command[:3], "graphs/wasteful.pkl", *command[4:], "scans=0", cwd=changed)
    assert unchanged.code == 1
    told = json.loads(scanopt(*command, "scans=1", "--format", "json", cwd=changed).out)
    assert sum(bool(entry["violations"]) for entry in told["graphs"]) == 2


def test_json_has_an_entry_for_each(changed: Path) -> None:
    (changed / "graphs" / "bad.pkl").write_bytes(b"no graph")
    (changed / "graphs" / "wasteful.pkl").write_bytes(b"no graph")
    done = scanopt("diff", "--against", "main", "graphs", "--format", "json", cwd=changed)
    assert done.code == 2
    told = json.loads(done.out)
    assert (told["schema"], told["command"], told["against"]) == (5, "diff", "main")
    entries = {Path(entry["source"]).stem: entry for entry in told["graphs"]}
    assert {name: entry.get("fate") for name, entry in entries.items()} == {
        "power": "differs",
        "grad": "new",
        "moved": "renamed",
        "off": "gone",
        "bad": "new",
        "wasteful": None,
    }
    assert entries["power"]["diff"]["headline"].startswith("1 Scan → 2")
    assert "error" in entries["wasteful"]


def test_annotations_and_the_summary(changed: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    done = scanopt(
        *("diff", "--against", "main", "graphs", "--format", "github", "--budget", "scans=1"),
        cwd=changed,
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert done.code == 1
    assert "::error file=graphs/power.pkl,title=over budget::" in done.out
    assert "::warning file=graphs/off.pkl,title=gone graph::" in done.out
    assert "5 graphs beside main" in summary.read_text(encoding="utf-8")


def test_a_page(changed: Path) -> None:
    done = scanopt("diff", "--against", "main", "graphs", "--html", "page.html", cwd=changed)
    assert done.code == 1
    page = (changed / "page.html").read_text(encoding="utf-8")
    assert "main:graphs/power.pkl" in page


def test_in_another_worktree(folder: Path, files: Path, tmp_path: Path) -> None:
    git(folder, "worktree", "add", "-q", tmp_path / "tree", "-b", "other")
    shutil.copy(files / "grad.pkl", tmp_path / "tree" / "graphs" / "power.pkl")
    done = scanopt("diff", "--against", "main", "graphs", cwd=tmp_path / "tree")
    assert done.code == 1
    assert done.out.endswith("4 graphs beside main: 1 different, 3 the same\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["power.pkl"], "takes two graphs, not 1"),
        (["power.pkl", "clean.pkl", "off.pkl"], "takes two graphs, not 3"),
        (["--against", "main"], "is missing"),
        (["--against", "nothing", "power.pkl"], "there is no such revision"),
        (["--against", "--help", "power.pkl"], "is the name of no revision"),
        (["--against", "main", "none.pkl"], "is neither here nor in main"),
        (["--against", "main", "/"], "is in no git repository"),
        (["--against", "main", ".", "--html", "power.pkl"], "would be overwritten"),
        (["--against", "main", ".", "--only-budget"], "there is no budget"),
    ],
)
def test_bad_options_are_one_line(words: list[str], message: str, folder: Path) -> None:
    done = scanopt("diff", *words, cwd=folder / "graphs")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err


def test_a_hostile_file_in_git_is_one_line(folder: Path) -> None:
    path = folder / "graphs" / "bad.pkl"
    path.write_bytes(b"cos\nsystem\n(S'touch marker'\ntR.")
    commit(folder)
    shutil.copy(folder / "graphs" / "power.pkl", path)
    done = scanopt("diff", "--against", "main", path, cwd=folder)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "main:" in done.err
    assert not (folder / "marker").exists()
