"""The directory for captured graphs: create it, and reserve file names in it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import DATA_SUFFIX, values_path

_NUMBERED = re.compile(r"(\d{1,9})_")


def made(directory: str | os.PathLike[str]) -> Path:
    """Return ``directory`` as an absolute path; create it if it is missing.

    A program whose graphs are captured may change its working directory.

    Raises
    ------
    ScanoptError
        If it cannot be created, or is not a directory.
    """
    path = Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScanoptError(
            f"no directory for graphs can be made here: {error.strerror}", where=str(path)
        ) from error
    return path.absolute()


def reserve(directory: Path, name: str) -> Path:
    """Create an empty file ``NUMBER_NAME.scanopt`` with the next free number, and return its path.

    Several processes may do so at the same time; each gets a file of its own.
    """
    readable = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:60] or "graph"
    matches = (_NUMBERED.match(file.name) for file in directory.iterdir())
    number = max((int(match[1]) for match in matches if match), default=0)
    while True:
        number += 1
        path = directory / f"{number:03}_{readable}{DATA_SUFFIX}"
        # Nor may a pickle, or the values file, replace anything, not even a dangling link.
        if any(map(os.path.lexists, (values_path(path), path.with_suffix(".pkl")))):
            continue
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        return path
