"""The lock file: what is known of each graph of a project, in the form that git merges well.

It is JSON with one entry a line, in a fixed order, and its schema is in the documentation. Paths in
it are relative to its directory and stay inside. Reading one imports no PyTensor, since a graph
whose bytes are as they were costs no more than that.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import read_bytes
from scanopt_cli.serialization.writing import write_atomically

NAME = "scanopt.lock"
"""What a lock file is called unless another name is given."""
_FORMAT = "scanopt-lock"
_VERSION = 1
_LARGEST = 32 << 20
_LONGEST = 4_096
_MOST = 1 << 63
_DIGEST = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COUNT = re.compile(r"[a-z_]{1,40}")
_AGAIN = "take it from git, or lock the graphs again"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedFinding:
    """A finding of `check`: the rule's code, the loop, its line if known, and what identifies it.

    ``text`` says what is so, of a finding that was just made.
    """

    rule: str
    loop: str
    place: str | None
    key: str
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedGraph:
    """What is known of a graph.

    Attributes
    ----------
    digest
        What `scanopt hash` prints; ``None`` if it holds what cannot be compared by value.
    sha256
        That of the file.
    by
        The versions of scanopt and PyTensor that found all this.
    counts
        What `diff --budget` limits, by name, but for what there is none of.
    budget
        Limits that were given to this graph, in place of its counts.
    findings
        What `check` finds.
    """

    digest: str | None
    sha256: str
    by: str
    counts: Mapping[str, int]
    budget: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[LockedFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file: the graphs by their names, and the directories that were locked as a whole."""

    path: Path
    graphs: Mapping[str, LockedGraph] = field(default_factory=dict)
    directories: tuple[str, ...] = ()

    def name_of(self, path: Path) -> str:
        """Return what a file or directory is called here.

        Raises
        ------
        ScanoptError
            If it is outside of the directory that the lock file is in.
        """
        folder = os.path.realpath(self.path.parent)
        name = os.path.relpath(os.path.realpath(path), folder)
        name = name.replace(os.sep, "/") if os.sep != "/" else name
        if not _is_inside(name):
            raise ScanoptError(
                f"is not in {folder}, where the lock file is, or has a name that it cannot hold",
                where=str(path),
                hint="put the lock file above all graphs",
            )
        return name

    def path_of(self, name: str) -> Path:
        """Return the path of what is called ``name``, from the working directory.

        Raises
        ------
        ScanoptError
            If links lead out of the directory that the lock file is in.
        """
        path = self.path.parent / name
        self.name_of(path)
        return path


def find_lock() -> Path | None:
    """Return the path of the nearest lock file at or above the working directory."""
    here = Path.cwd()
    found = next((up / NAME for up in (here, *here.parents) if (up / NAME).is_file()), None)
    return None if found is None else Path(os.path.relpath(found, here))


def read_lock(path: Path) -> Lock:
    """Return what a lock file holds.

    Raises
    ------
    ScanoptError
        If it cannot be read, is no lock file, or is one of a later version.
    """
    where = str(path)
    data = read_bytes(path)
    if len(data) > _LARGEST:
        hint = "lock fewer graphs"
        raise ScanoptError(f"has more than {_LARGEST:,} bytes", where=where, hint=hint)
    if b"\n<<<<<<<" in data or b"\n>>>>>>>" in data:
        hint = "keep one side of each conflict, or both entries, and run scanopt lock"
        raise ScanoptError("has marks of a merge that is not finished", where=where, hint=hint)
    try:
        table = json.loads(data, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, _TwiceError) else "is no lock file"
        raise ScanoptError(reason, where=where, hint=_AGAIN) from None
    if isinstance(table, dict) and table.keys() == {"schema", "findings"}:
        hint = "write a lock file by `scanopt lock GRAPH...`, which holds its findings too"
        raise ScanoptError("is a baseline of an earlier version", where=where, hint=hint)
    if not isinstance(table, dict) or table.get("format") != _FORMAT:
        raise ScanoptError("is no lock file", where=where, hint="write one by `scanopt lock`")
    version = table.get("version")
    if type(version) is int and version > _VERSION:
        problem = f"was written by a later version of scanopt (its form is {version})"
        raise ScanoptError(problem, where=where, hint="update scanopt")
    try:
        return _lock(table, path)
    except (_DamagedError, AttributeError, KeyError, TypeError) as error:
        told = f": {error}" if isinstance(error, _DamagedError) else ""
        raise ScanoptError(f"is damaged{told}", where=where, hint=_AGAIN) from None


def write_lock(lock: Lock) -> None:
    """Write a lock file, whole or not at all.

    Raises
    ------
    ScanoptError
        If it cannot be written.
    """
    write_atomically(lock.path, _text(lock).encode())


class _TwiceError(ValueError):
    """An entry is there twice, as after a merge."""


class _DamagedError(Exception):
    """What is wrong with a lock file."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _TwiceError(f"has two entries {twice[:_LONGEST]!r}")
    return table


def _lock(table: dict[str, Any], path: Path) -> Lock:
    _require(table["version"] == _VERSION, "its form")
    _require(table.keys() == {"format", "version", "directories", "graphs"}, "its entries")
    directories = table["directories"]
    _require(isinstance(directories, list), "directories")
    for name in (*directories, *table["graphs"].keys()):
        _require(isinstance(name, str) and _is_inside(name), f"{name!r:.200} is no path inside")
    graphs = {}
    for name, entry in table["graphs"].items():
        try:
            graphs[name] = _graph(entry)
        except (_DamagedError, AttributeError, KeyError, TypeError) as error:
            told = f"{error} of " if isinstance(error, _DamagedError) else ""
            raise _DamagedError(f"{told}{name:.200}") from None
    return Lock(path, graphs, tuple(directories))


def _graph(entry: dict[str, Any]) -> LockedGraph:
    known = {"digest", "sha256", "by", "counts", "findings"}
    _require(entry.keys() - {"budget"} == known, "entries")
    digest, sha256 = entry["digest"], entry["sha256"]
    _require(digest is None or _DIGEST.fullmatch(digest), "digest")
    _require(_SHA256.fullmatch(sha256), "sha256")
    _require(_is_text(entry["by"]), "by")
    _require(isinstance(entry["findings"], list), "findings")
    return LockedGraph(
        digest=digest,
        sha256=sha256,
        by=entry["by"],
        counts=_counts(entry["counts"], "counts"),
        budget=_counts(entry.get("budget", {}), "budget"),
        findings=tuple(map(_finding, entry["findings"])),
    )


def _finding(entry: dict[str, Any]) -> LockedFinding:
    _require(entry.keys() == {"rule", "loop", "place", "key"}, "findings")
    texts = (entry["rule"], entry["loop"], entry["key"], entry["place"] or "")
    _require(all(map(_is_text, texts)), "findings")
    return LockedFinding(**entry)


def _counts(entry: dict[str, Any], what: str) -> dict[str, int]:
    for name, count in entry.items():
        _require(_COUNT.fullmatch(name), what)
        _require(type(count) is int and 0 <= count < _MOST, what)
    return entry


def _require(holds: object, what: str) -> None:
    if not holds:
        raise _DamagedError(what)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST


def _is_inside(name: str) -> bool:
    """Whether a path is relative, plain, and stays inside of its directory, on any system."""
    return (
        _is_text(name)
        and "\0" not in name
        and "\\" not in name
        and not PureWindowsPath(name).drive
        and not name.startswith("/")
        and ".." not in name.split("/")
        and (PurePosixPath(name).as_posix() == name)
    )


def _text(lock: Lock) -> str:
    head = {"format": _FORMAT, "version": _VERSION, "directories": sorted(lock.directories)}
    blocks = [_block(name, lock.graphs[name]) for name in sorted(lock.graphs)]
    graphs = f"{{\n{',\n'.join(blocks)}\n }}" if blocks else "{}"
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    return "\n".join(["{", *lines, f' "graphs": {graphs}', "}", ""])


def _block(name: str, graph: LockedGraph) -> str:
    entries: dict[str, Any] = {
        "digest": graph.digest,
        "sha256": graph.sha256,
        "by": graph.by,
        "counts": dict(graph.counts),
    }
    if graph.budget:
        entries["budget"] = dict(graph.budget)
    lines = [f"   {json.dumps(key)}: {json.dumps(value)}," for key, value in entries.items()]
    findings = ",\n".join(f"    {json.dumps(_entry(found))}" for found in graph.findings)
    listed = f"[\n{findings}\n   ]" if findings else "[]"
    return "\n".join([f"  {json.dumps(name)}: {{", *lines, f'   "findings": {listed}', "  }"])


def _entry(found: LockedFinding) -> dict[str, Any]:
    return {"rule": found.rule, "loop": found.loop, "place": found.place, "key": found.key}


def is_below(name: str, directories: Iterable[str]) -> bool:
    """Whether a file is in one of the directories, at any depth; ``.`` is that of the lock file."""
    return any(each == "." or name.startswith(f"{each}/") for each in directories)
