"""Graph files as they are in git at a revision.

A repository may be a stranger's. Git is asked for what it stores by commands that run no hook, no
filter and no other program that a repository's configuration names, and fetch nothing. They get a
revision as the name of a commit, and never as an option.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import TemporaryFile
from threading import Timer

from scanopt_cli.errors import LoadError, ScanoptError
from scanopt_cli.serialization.files import GRAPH_SUFFIXES, Blob, check_size

# Seconds that one command of git may take.
_SECONDS = 60
_MOST_LISTED = 64 << 20
_HARMLESS = (
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    # Files that are checked out may look like a repository, with a configuration.
    *("-c", "safe.bareRepository=explicit"),
    "--no-pager",
    "--literal-pathspecs",
    "--no-optional-locks",
)
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",  # or a clone that lacks an object would fetch it
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
# What names another repository than the one that a file is in, as for hooks.
_NOT_KEPT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE")
_NO_REPOSITORY = ("not a git repository", "in a work tree", "cannot use bare repository")
_FILE, _LINK = "100", "120000"
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n(?:.*\n)*"
)
_LONGEST_POINTER = 1024


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as git lists it: the kind of entry, and the object."""

    mode: str
    oid: str

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return self.mode == _LINK

    def holds(self, data: bytes) -> bool:
        """Whether the object has this content."""
        kind = hashlib.sha256 if len(self.oid) == 64 else hashlib.sha1
        return kind(b"blob %d\0%s" % (len(data), data)).hexdigest() == self.oid


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit of the repository at ``root``; ``name`` is what the user calls it."""

    root: Path
    name: str
    commit: str

    @classmethod
    def of(cls, path: Path, name: str) -> Revision:
        """Return the commit that ``name`` is in the repository that ``path`` is in, or was once.

        Raises
        ------
        ScanoptError
            If there is no git, no repository, or no such revision.
        """
        where = f"--against {name}"
        if not name or name.startswith("-") or "\0" in name:
            hint = "give a branch, a tag or a commit, such as origin/main"
            raise ScanoptError("is the name of no revision", where=where, hint=hint)
        folder = Path(os.path.realpath(path))
        while not os.path.isdir(folder):
            folder = folder.parent
        root = _text(folder, "rev-parse", "--show-toplevel", where=str(path))
        found = _ask(
            folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
        if found.code == 0:
            return cls(Path(root), name, found.out.decode().strip())
        if _ask(folder, "rev-parse", "--is-shallow-repository").out.strip() == b"true":
            raise ScanoptError(
                "is not in this clone, which is shallow",
                where=where,
                hint="check out with fetch-depth: 0, or run git fetch --unshallow",
            )
        hint = f"run git fetch, or check the name; it is looked for in {root}"
        raise ScanoptError("there is no such revision", where=where, hint=hint)

    def files(self, path: Path) -> dict[Path, StoredFile]:
        """Return the file ``path`` as it was, or the graph files that were below the directory.

        Each stands under its path, which begins with ``path``. There is none if nothing was there.

        Raises
        ------
        ScanoptError
            If ``path`` is outside of the repository, or git fails.
        """
        whole = Path(os.path.realpath(path))
        if not whole.is_relative_to(self.root):
            hint = f"give paths in {self.root}"
            raise ScanoptError("is in another repository, or in none", where=str(path), hint=hint)
        inside = whole.relative_to(self.root).as_posix()
        names = [] if inside == "." else ["--", inside]
        listed = _ask(self.root, "ls-tree", "-r", "-z", "--full-tree", self.commit, *names)
        _require(listed, str(path))
        found = {}
        for line in listed.out.split(b"\0")[:-1]:
            described, _, name = line.partition(b"\t")
            mode, _, oid = described.decode().split()
            below = os.path.relpath(os.fsdecode(name), inside)
            is_graph = below == "." or below.endswith(GRAPH_SUFFIXES)
            if is_graph and mode.startswith((_FILE, _LINK)):
                place = path if below == "." else path / below
                found[place] = StoredFile(mode, oid)
        return found

    def read(self, path: Path, file: StoredFile) -> Blob:
        """Return the content of a file; if that is in Git LFS, what it has of it on this machine.

        Raises
        ------
        LoadError
            If it is no regular file, is not in this clone, or is too large.
        """
        where = f"{self.name}:{path}"
        if file.is_link:
            hint = "compare what it leads to"
            raise LoadError("is a symbolic link", where=where, hint=hint)
        size = _ask(self.root, "cat-file", "-s", file.oid)
        if size.code != 0:
            raise LoadError(
                "is not in this clone, which is damaged or leaves contents out",
                where=where,
                hint="clone without --filter, or run git fetch --refetch",
            )
        check_size(int(size.out), where)
        found = _ask(self.root, "cat-file", "blob", file.oid, most=int(size.out))
        _require(found, where)
        return Blob(where, self._from_lfs(found.out, where))

    def _from_lfs(self, data: bytes, where: str) -> bytes:
        """Return ``data``, or what it stands for if it is a pointer of Git LFS."""
        oid = pointed_at(data)
        if oid is None:
            return data
        git_dir = _text(self.root, "rev-parse", "--git-common-dir", where=where)
        stored = self.root / git_dir / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
        try:
            check_size(stored.stat().st_size, where)
            content = stored.read_bytes()
        except OSError:
            content = b""
        if hashlib.sha256(content).hexdigest() != oid:
            raise LoadError(
                "is a pointer of Git LFS, whose content is not on this machine",
                where=where,
                hint=f"run git lfs fetch origin {self.name}",
            )
        return content


@dataclass(frozen=True, slots=True)
class FileInGit:
    """A file as it is at a revision, under a path."""

    revision: Revision
    path: Path
    file: StoredFile

    def __str__(self) -> str:
        return f"{self.revision.name}:{self.path}"

    def holds(self, data: bytes) -> bool:
        """Whether it has this content, for which git need not be asked."""
        return self.file.holds(data)

    def read(self) -> Blob:
        """Return its content, as `Revision.read` does."""
        return self.revision.read(self.path, self.file)


def pointed_at(data: bytes) -> str | None:
    """Return the SHA-256 of the content that a pointer of Git LFS stands for."""
    found = _POINTER.fullmatch(data) if len(data) <= _LONGEST_POINTER else None
    return None if found is None else found[1].decode()


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int
    out: bytes
    error: str


def _text(folder: Path, *arguments: str, where: str) -> str:
    """Return what git prints, in one line."""
    answer = _ask(folder, *arguments)
    _require(answer, where)
    return os.fsdecode(answer.out.removesuffix(b"\n"))


def _require(answer: _Answer, where: str) -> None:
    if answer.code == 0:
        return
    if any(text in answer.error for text in _NO_REPOSITORY):
        hint = "--against is for files that are checked out"
        raise ScanoptError("is in no git repository", where=where, hint=hint)
    raise ScanoptError(f"git says: {answer.error}", where=where)


def _ask(folder: Path, *arguments: str, most: int = _MOST_LISTED) -> _Answer:
    """Run git in ``folder``, within limits of time and of how much it prints."""
    git = which("git")
    if git is None:
        raise ScanoptError("there is no git", where="--against", hint="install git")
    command = [git, *_HARMLESS, "-C", str(folder), *arguments]
    environment = {k: v for k, v in os.environ.items() if k not in _NOT_KEPT} | _ENVIRONMENT
    with (
        TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
        ) as process,
        _killed_after(_SECONDS, process) as is_late,
    ):
        assert process.stdout is not None
        out = process.stdout.read(most + 1)
        if len(out) > most:
            process.kill()
            raise ScanoptError(f"git prints more than {most:,} bytes", where=str(folder))
        code = process.wait()
        if is_late:
            raise ScanoptError(f"git takes more than {_SECONDS} seconds", where=str(folder))
        errors.seek(0)
        lines = errors.read(10_000).decode(errors="replace").splitlines()
    fatal = [line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")]
    return _Answer(code, out, next(iter([*fatal, *lines]), f"exit code {code}"))


@contextmanager
def _killed_after(seconds: float, process: subprocess.Popen[bytes]) -> Iterator[list[bool]]:
    """End ``process`` after some seconds; the list that is yielded then holds something."""
    is_late: list[bool] = []

    def end() -> None:
        is_late.append(True)
        process.kill()

    timer = Timer(seconds, end)
    timer.start()
    try:
        yield is_late
    finally:
        timer.cancel()
