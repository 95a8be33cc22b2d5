"""One captured graph: a copy in memory, until it is known whether it is kept; then its files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytensor.compile.mode import get_mode, predefined_modes
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.scan.op import Scan

from scanopt_cli.errors import LoadError, ScanoptError
from scanopt_cli.integration.capture import index
from scanopt_cli.integration.capture.directory import reserve
from scanopt_cli.integration.capture.hooks import Watch
from scanopt_cli.integration.capture.origin import CaptureOrigin
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.serialization.files import values_path
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from scanopt_cli.serialization.values import values_file
from scanopt_cli.serialization.writing import write_atomically

_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which graphs are kept: all, or those that took so long, or that raised an error."""

    on_slow: float | None = None
    on_error: bool = False

    @property
    def is_all(self) -> bool:
        """Whether nothing has to be known of a graph to keep it."""
        return self.on_slow is None and not self.on_error


ALL = Wanted()


@dataclass(slots=True)
class CapturedGraph(Watch):
    """Writes a graph, and in the index what became of it, once it is known to be wanted."""

    graph: Graph
    name: str
    function: str | None
    origin: CaptureOrigin
    mode: Any
    directory: Path
    wanted: Wanted
    is_new: Callable[[], bool]
    """Says whether no equal graph was written."""
    wrote: Callable[[Path], None]
    """Is told of the graph's file."""

    _path: Path | None = None
    _values: bytes | None = None
    _entries: dict[str, Any] = field(default_factory=dict)

    def keep(self) -> None:
        """Write the graph, its values and its entry, unless that is done."""
        if self._path is not None or not self.is_new():
            return
        self._path, entries = self._written(reserve(self.directory, self.name))
        self.wrote(self._path)
        self._entries = self._description() | entries | self._entries
        self._enter()
        self._write_values()

    def __call__(self, values: Sequence[Any]) -> None:
        """Keep the values of the first call."""
        with _told(f"the values of the first call of {self._path or self.name} are not kept"):
            self._values = values_file([values])
            self._write_values()

    def compiled(self, seconds: float) -> None:
        """Note how long the compilation took."""
        self._note(compile_seconds=round(seconds, 6))

    def called(self, seconds: float) -> None:
        """Note how long the first call took."""
        self._note(first_call_seconds=round(seconds, 6))
        self._values = None

    def failed(self, what: str, error: BaseException) -> None:
        """Note what raised an error."""
        text = " ".join(str(error).split())[:_LONGEST]
        self._note(error={"in": what, "class": type(error).__name__, "message": text})
        self._values = None

    def _note(self, **entries: Any) -> None:
        with _told(f"nothing more is kept of {self._path or self.name}"):
            self._entries |= entries
            if self._path is not None:
                self._enter()
            elif self._is_wanted():
                self.keep()

    def _is_wanted(self) -> bool:
        # Numba and JAX compile in the first call.
        seconds = sum(self._entries.get(name, 0.0) for name in _TIMES)
        is_slow = self.wanted.on_slow is not None and seconds >= self.wanted.on_slow
        return is_slow or (self.wanted.on_error and "error" in self._entries)

    def _enter(self) -> None:
        assert self._path is not None
        with _told(f"{self._path} is not in the index"):
            index.enter(self._path, **self._entries)

    def _write_values(self) -> None:
        if self._path is not None and self._values is not None:
            write_atomically(values_path(self._path), self._values)

    def _written(self, path: Path) -> tuple[Path, dict[str, Any]]:
        """Write the graph as data, else as a pickle; return its file, and what there is to say."""
        try:
            save(self.graph, path)
            return path, {"format": "data", "loads": True}
        except ScanoptError as error:
            reason = error.what
        except BaseException:
            path.unlink()
            raise
        path.unlink()
        path = path.with_suffix(".pkl")
        save(self.graph, path, trust=True)
        entries = {"format": "pickle", "why_no_data": reason[:_LONGEST], "loads": True}
        try:
            load(path, recorded=False)
        except LoadError as error:
            warn("a graph is kept that will not load without --trust", error)
            entries["loads"] = False
        return path, entries

    def _description(self) -> dict[str, Any]:
        loops = sum(isinstance(core_op(node.op), Scan) for node in walk(self.graph.fgraph))
        return {
            "function": self.function,
            "asked_for": self.origin.name,
            "script": self.origin.file,
            "line": self.origin.line,
            "scans": loops,
            "nodes": len(self.graph.fgraph.apply_nodes),
            "mode": mode_text(self.mode),
            "compile_seconds": None,
            "first_call_seconds": None,
            "error": None,
        }


_TIMES = ("compile_seconds", "first_call_seconds")


def mode_text(mode: Any) -> str:
    """Return the name of a mode of PyTensor's, or what one of the program's own is made of.

    ``None`` is the mode that PyTensor is configured to use.
    """
    found = get_mode(mode)
    for name, known in predefined_modes.items():
        if known is found:
            return name
    parts = {"linker": found.provided_linker, "optimizer": found.provided_optimizer}
    # Of names of optimizers, PyTensor makes queries at once, which are pages long.
    told = [
        f"{name}={_short(part)}"
        for name, part in parts.items()
        if not isinstance(part, RewriteDatabaseQuery)
    ]
    return f"{type(found).__name__}({', '.join(told)})"


def _short(part: Any) -> str:
    return part[:_LONGEST] if isinstance(part, str) else type(part).__name__


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Make one line on stderr of an error: a program is not to notice that it is captured."""
    try:
        yield
    except Exception as error:
        warn(what, error)


def warn(what: str, error: Exception) -> None:
    """Say on stderr, in one line, what is not kept and why."""
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"scanopt: {what}: {text}", file=sys.stderr)
