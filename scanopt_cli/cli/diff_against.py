"""``scanopt diff --against``: which graph files are compared with what they are in git."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scanopt_cli.cli.diff_files import content
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.graph_pairs import FilePair
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.revisions import FileInGit, Revision


def pairs_at_revision(paths: Sequence[Path], name: str) -> list[FilePair[FileInGit]]:
    """Return the files that are named, and those in directories, here or in git, once each.

    Raises
    ------
    ScanoptError
        If there is no such revision, or a path is neither here nor there.
    """
    pairs: dict[Path, FilePair[FileInGit]] = {}
    revisions: dict[str, Revision] = {}
    for path in paths:
        folder = os.path.realpath(path if os.path.isdir(path) else path.parent)
        revision = revisions.setdefault(folder, revisions.get(folder) or Revision.of(path, name))
        stored = revision.files(path)
        present = graph_files([path]) if os.path.isdir(path) else {}
        if os.path.isdir(path):
            # A directory may have graphs in git alone.
            present = {file: why for file, why in present.items() if file != path or not stored}
        elif os.path.lexists(path):
            present[path] = None
        if not (stored or present):
            where = f"neither here nor in {name}"
            raise ScanoptError(f"is {where}", where=str(path), hint="check the path")
        for file in sorted({*stored, *present}):
            earlier = FileInGit(revision, file, stored[file]) if file in stored else None
            if earlier is None or not (earlier.file.is_link and file.is_symlink()):
                pairs[file] = FilePair(
                    file, earlier, exists=file in present, problem=present.get(file)
                )
    return _renamed(list(pairs.values()))


def _renamed(pairs: list[FilePair[FileInGit]]) -> list[FilePair[FileInGit]]:
    """Return pairs in which a file that is new and has the content of one that is gone is both."""
    gone = {
        pair.earlier.file.oid: pair.earlier
        for pair in pairs
        if not pair.exists and pair.earlier is not None
    }
    found, taken = [], set()
    for pair in pairs:
        is_new = pair.earlier is None and pair.problem is None
        data = content(pair.path) if gone and is_new else None
        oid = next((oid for oid in gone if data is not None and gone[oid].holds(data)), None)
        if oid is not None:
            earlier = gone.pop(oid)
            taken.add(earlier.path)
            pair = replace(pair, earlier=earlier, renamed=earlier.path)
        found.append(pair)
    return [pair for pair in found if pair.exists or pair.path not in taken]
