"""Git repositories for tests, made by git itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_WHO = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(folder: Path, *arguments: str | Path) -> str:
    """Run git in a folder, and return what it prints."""
    done = subprocess.run(
        ["git", "-C", str(folder), *map(str, arguments)],
        env={**os.environ, **_WHO},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository(folder: Path, *options: str) -> Path:
    """Make an empty repository, and return where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main", *options)
    return folder


def commit(folder: Path, message: str = "more") -> str:
    """Commit all that is in a folder, and return the name of the commit."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD").strip()
