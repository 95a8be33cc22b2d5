"""What a reduction has tried, in a file, so that one that was interrupted goes on where it was.

A reduction takes the same course each time. So its file has no graphs: it has a line of JSON for
each one that was evaluated, and one that starts again makes the same graphs, and evaluates those
alone that have no line.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytensor

from scanopt_cli.culprits.properties import Limits, Outcome, Property, State
from scanopt_cli.culprits.reductions import settings_of_scans, size
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.version import __version__

_HEAD = "scanopt reduce"


def graph_key(graph: Graph) -> str:
    """Return what tells a graph, with its recorded values, from others, in all processes."""
    values = [_value_key(value) for call in graph.recorded for value in call]
    return _hashed([digest(graph), size(graph), settings_of_scans(graph), values])


def reduction_key(
    graph: Graph, pipeline: str, wrong: Property, limits: Limits, rewriter: str | None
) -> str:
    """Return what tells a reduction from others, whose outcomes may be others."""
    details: dict[str, Any] = asdict(wrong) if is_dataclass(wrong) else {}
    flags = os.environ.get("PYTENSOR_FLAGS", "")
    versions = __version__, pytensor.__version__, np.__version__
    kind = type(wrong).__name__
    return _hashed(
        [
            graph_key(graph),
            [pipeline, rewriter],
            [kind, wrong.text, details],
            asdict(limits),
            [flags, versions],
        ]
    )


def _hashed(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def _value_key(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        array = np.ascontiguousarray(value)
        content = f"{array.dtype} {array.shape} ".encode() + array.tobytes()
    else:
        content = pickle.dumps(value)
    return hashlib.sha256(content).hexdigest()


class Tried:
    """The outcomes of a reduction, by the keys of graphs; ``path`` is ``None`` for no file.

    Raises
    ------
    ScanoptError
        If the file is that of another reduction, or of something else.
    """

    def __init__(self, path: Path | None, reduction: str) -> None:
        self._path = path
        self._head = [_HEAD, reduction]
        self._known: dict[str, Outcome] = {}
        self._is_open = False
        if path is not None and path.exists():
            self._read(path)

    def known(self, key: str) -> Outcome | None:
        """Return what came of a graph in a call before."""
        return self._known.get(key)

    def note(self, key: str, outcome: Outcome) -> None:
        """Write what came of a graph."""
        if self._path is None:
            return
        self._known[key] = outcome
        try:
            if not self._is_open:  # what an interrupt cut off must not stand before a new line
                lines = [self._head, *(_line(*item) for item in self._known.items())]
                self._path.write_text("".join(json.dumps(line) + "\n" for line in lines))
                self._is_open = True
                return
            with self._path.open("a") as file:
                file.write(json.dumps(_line(key, outcome)) + "\n")
        except OSError as error:
            raise ScanoptError(
                f"cannot be written: {error.strerror or error}", where=str(self._path)
            ) from None

    def end(self) -> None:
        """Remove the file of a reduction that has come to its end."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _read(self, path: Path) -> None:
        try:
            head, *lines = path.read_bytes().split(b"\n")
        except OSError as error:
            raise ScanoptError(
                f"cannot be read: {error.strerror or error}", where=str(path)
            ) from None
        found: Any = None
        with suppress(ValueError):
            found = json.loads(head)
        if found != self._head:
            is_other = isinstance(found, list) and found[:1] == [_HEAD]
            what = "is what another reduction has tried" if is_other else "is in the way"
            hint = "delete it to begin anew" if is_other else "move it away"
            raise ScanoptError(what, where=str(path), hint=f"{hint}, or write elsewhere")
        with suppress(ValueError, TypeError):  # an interrupt may have cut off the last line
            for line in filter(None, lines):
                key, state, why, kinds = json.loads(line)
                self._known[str(key)] = Outcome(State(state), str(why), kinds=tuple(kinds))


def _line(key: str, outcome: Outcome) -> list[Any]:
    return [key, outcome.state, outcome.why, outcome.kinds]
