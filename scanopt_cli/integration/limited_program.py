"""Limits PyTensor's rewrites in a program that `bisect --check` runs; the program's own side.

What is counted are the rewrites of functions that the program compiles, all of them in turn, in all
of its processes. What a library rewrites for itself (PyMC, to derive a density) is left alone: it
may be unable to do without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pytensor.compile.maker import FunctionMaker
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.integration.capture.origin import CaptureOrigin, origin
from scanopt_cli.verification.child_record import Rewritten
from scanopt_cli.verification.program_gate import open_count, read_gate, write_last
from scanopt_cli.verification.rewrite_gate import RewriteGate, closing


def limit_rewrites(directory: Path) -> None:
    """Count PyTensor's rewrites in this process, and limit them, as the directory says."""
    gate = _ProgramGate(directory)
    for name in ("__init__", "create"):  # which rewrites the graph, and which links it
        setattr(FunctionMaker, name, _counted(vars(FunctionMaker)[name], gate))


def _counted(original: Callable[..., Any], gate: _ProgramGate) -> Callable[..., Any]:
    @wraps(original)
    def method(maker: FunctionMaker, *args: Any, **kwargs: Any) -> Any:
        if gate.is_compiling:  # one that is compiled for another is a part of it
            return original(maker, *args, **kwargs)
        name = kwargs.get("name") or getattr(maker, "name", None)
        with gate.compiling(maker, origin(), name):
            return original(maker, *args, **kwargs)

    return method


class _ProgramGate(RewriteGate):
    """Counts together with the gates of the program's other processes."""

    def __init__(self, directory: Path) -> None:
        gate = read_gate(directory)
        super().__init__(gate.most, gate.without, keeps_graphs=gate.directory is not None)
        self._directory = directory
        self._graphs = gate.directory
        self._file = open_count(directory)
        self._functions: WeakKeyDictionary[FunctionMaker, str] = WeakKeyDictionary()
        self._n_functions = 0
        self._function: str | None = None

    @property
    def count(self) -> int:
        """How many rewrites were applied, in all processes."""
        return os.fstat(self._file).st_size

    def add(self) -> None:
        """Count one more."""
        os.write(self._file, b".")

    @property
    def is_compiling(self) -> bool:
        """Whether a function is being compiled."""
        return self._function is not None

    @contextmanager
    def compiling(
        self, maker: FunctionMaker, caller: CaptureOrigin, name: str | None
    ) -> Iterator[None]:
        """Count what is rewritten inside, for a function of the program."""
        if maker not in self._functions:
            place = f", at {caller.place}" if caller.place else ""
            self._n_functions += 1
            self._functions[maker] = f"number {self._n_functions}, {caller.what(name)}{place}"
        self._function = self._functions[maker]
        try:
            with closing(self):
                yield
        finally:
            self._function = None

    def note(
        self,
        rewriter: Any,
        fgraph: FunctionGraph | None,
        before: FunctionGraph | None,
        node: str | None,
    ) -> None:
        """Count a rewrite, and write what is known of it if it is the last one."""
        super().note(rewriter, fgraph, before, node)
        if self.last is None or self.last.number != self._most:
            return
        self.last = replace(self.last, function=self._function)
        write_last(self._directory, Rewritten(self.last.number, self.last))
        if self._graphs is not None:
            with suppress(Exception):  # a graph that cannot be kept is not shown
                self.save_graphs(self._graphs)
