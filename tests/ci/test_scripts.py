"""The scripts that workflows run, beside programs that stand in for GitHub's and for make."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/usr/bin/env bash\n{script}\n")
    file.chmod(0o755)
    return file


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("open_issue", "wanted"), [("", "create"), ("12", "comment")])
def test_a_failure_opens_an_issue_or_adds_to_it(
    tmp_path: Path, open_issue: str, wanted: str
) -> None:
    told = tmp_path / "told.txt"
    script = f"""
        if [[ "$1 $2" = "issue list" ]]; then echo "{open_issue}"; exit; fi
        printf '%s|' "$@" >> "{told}"; echo >> "{told}"
    """
    gh = program(tmp_path / "bin", "gh", script)
    path = f"{gh.parent}{os.pathsep}{os.environ['PATH']}"
    run(ROOT / ".ci" / "report-failure", cwd=tmp_path, PATH=path, RUN="https://run.example/7")
    text = told.read_text()
    assert "https://run.example/7" in text
    assert text.splitlines()[-3 if wanted == "comment" else 1].startswith(f"issue|{wanted}|")
    assert ("issue|create|" in text) == (not open_issue)
    assert ("issue|comment|12|" in text) == bool(open_issue)


def test_runs_of_benchmarks_are_added_to_a_branch(tmp_path: Path) -> None:
    """The branch is made by the first run; it holds nothing else, and the second adds to it."""
    origin, clone = tmp_path / "origin.git", tmp_path / "clone"
    run("git", "init", "--quiet", "--bare", "--initial-branch=main", origin, cwd=tmp_path)
    run("git", "clone", "--quiet", origin, clone, cwd=tmp_path)
    identity = ("-c", "user.name=me", "-c", "user.email=me@localhost")
    (clone / ".ci").mkdir()
    script = clone / ".ci" / "keep-benchmarks"
    script.write_text((ROOT / ".ci" / "keep-benchmarks").read_text())
    script.chmod(0o755)
    (clone / "code.py").write_text("pass\n")
    run("git", "checkout", "--quiet", "-B", "main", cwd=clone)
    run("git", "add", "--all", cwd=clone)
    run("git", *identity, "commit", "--quiet", "-m", "first", cwd=clone)
    run("git", "push", "--quiet", "origin", "main", cwd=clone)
    make = program(
        tmp_path / "bin",
        "make",
        """
        for argument in "$@"; do
            case $argument in STORE=*) store=${argument#*=};; HISTORY=*) page=${argument#*=};; esac
        done
        mkdir -p "$store"
        echo run >> "$store/$(ls "$store" | wc -l | tr -d ' ').json"
        ls "$store" > "$page"
        """,
    )
    for count in (1, 2):
        run(script, cwd=clone, MAKE=str(make))
        held = run("git", "ls-tree", "-r", "--name-only", "benchmarks", cwd=origin).stdout.split()
        assert held == ["history.md", *(f"runs/{number}.json" for number in range(count))]
        log = run("git", "log", "--format=%s", "benchmarks", cwd=origin).stdout.splitlines()
        assert len(log) == count
        assert log[0].startswith("Benchmarks of ")
        # What is uploaded.
        assert (clone / "build" / "benchmarks" / "history.md").exists()
        # As a machine of CI begins: with a clone that knows of nothing else.
        run("git", "worktree", "remove", "--force", "build/benchmarks", cwd=clone)
        run("git", "branch", "-D", "benchmarks", cwd=clone)
    assert run("git", "status", "--porcelain", cwd=clone).stdout == ""
