"""The files by which `bisect` limits PyTensor's rewrites in a program, and learns of the last one.

The program may start other processes: all of them count in the same file, which grows by one byte
with each rewrite, as the system appends each whole.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from scanopt_cli.verification.child_record import Rewritten, from_line, to_line
from scanopt_cli.verification.spawning import Gate

_GATE, _COUNT, _LAST = "gate.json", "count", "last.json"
_FAILED = "failed"
"""Why a process cannot count; ``startup/sitecustomize.py`` repeats this name."""


def write_gate(directory: Path, gate: Gate) -> None:
    """Write how many rewrites a program may apply."""
    kept = None if gate.directory is None else str(gate.directory)
    (directory / _GATE).write_text(json.dumps([gate.most, kept, gate.without]))


def read_gate(directory: Path) -> Gate:
    """Read what `write_gate` wrote."""
    most, kept, without = json.loads((directory / _GATE).read_text())
    return Gate(most, None if kept is None else Path(kept), without)


def open_count(directory: Path) -> int:
    """Open the file that counts, and return its descriptor."""
    return os.open(directory / _COUNT, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def write_last(directory: Path, last: Rewritten) -> None:
    """Write what is known of the last rewrite, whole or not at all."""
    part = directory / f"{_LAST}.{os.getpid()}"
    part.write_text(to_line(last))
    part.replace(directory / _LAST)


def rewritten(directory: Path) -> Rewritten:
    """Return how many rewrites a program has applied, and the last of them if the gate closed."""
    count, last = 0, None
    with suppress(OSError):
        count = (directory / _COUNT).stat().st_size
    with suppress(OSError):
        found = from_line((directory / _LAST).read_text())
        last = found.last if isinstance(found, Rewritten) else None
    return Rewritten(count, last)


def why_not(directory: Path) -> str | None:
    """Return why a process could not count, if one could not."""
    path = directory / _FAILED
    return path.read_text().strip() if path.exists() else None
