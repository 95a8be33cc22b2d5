"""Runs passes on graphs in child processes, and reads what came of it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scanopt_cli.culprits import pass_worker
from scanopt_cli.culprits.pass_worker import PassRequest, PassResult
from scanopt_cli.culprits.properties import Limits
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.serialization.payload import decode
from scanopt_cli.verification.spawning import run_module, write_request

_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b")


@dataclass(frozen=True)
class Ran:
    """What came of passes that ran on a graph.

    Attributes
    ----------
    original
        The graph.
    directory
        Where the child has written what it did.
    failure
        Why it did not end well, if it did not.
    """

    original: Graph
    directory: Path
    failure: str | None

    @cached_property
    def _entries(self) -> Sequence[tuple[str, str]]:
        return pass_worker.entries(self.directory)

    @property
    def changed(self) -> list[str]:
        """The passes that changed the graph, in order; last ``optimize`` itself."""
        return [what for kind, what in self._entries if kind == "changed"]

    @property
    def left(self) -> str | None:
        """Which pass raised an error and left the graph as it was, and what it raised."""
        return next((what for kind, what in self._entries if kind == "left"), None)

    @property
    def failing(self) -> str | None:
        """Which pass raises an error or ends the process, and of which class the error is."""
        if self.failure is None and self.left is None:
            return None
        name = self.begun if self.failure is not None else str(self.left).partition(":")[0]
        return f"{name} {' '.join(_ERROR.findall(self.failure or str(self.left))[-1:])}"

    @property
    def begun(self) -> str:
        """The last pass that began."""
        return next((what for kind, what in reversed(self._entries) if kind == "begin"), "")

    def after(self, position: int) -> Graph:
        """Return the graph after so many changes."""
        if position == 0:
            return self.original
        path = pass_worker.snapshot_path(self.directory, position)
        return decode(pass_worker.read(path), "the graph after a pass")

    @property
    def last(self) -> Graph:
        """The graph after all changes."""
        return self.after(len(self.changed))


@dataclass(slots=True)
class PassRunner:
    """Runs passes in child processes, each with a directory of its own in ``directory``."""

    directory: Path
    limits: Limits
    _count: int = 0

    def run(
        self,
        graph: Graph,
        passes: Sequence[Pass],
        *,
        limit: int | None = None,
        once: bool = False,
        strict: bool = False,
    ) -> Ran:
        """Run passes as `optimize` does; or one pass ``once``, with a limit to its rewrites.

        An error of one of scanopt's own ends the run only if it is ``strict``.
        """
        directory = self.new_directory()
        request = PassRequest(
            tables=pass_worker.tables_of(graph),
            passes=tuple(passes),
            is_pipeline=not once,
            limit=limit,
            strict=strict,
            timeout=self.limits.timeout,
            memory=self.limits.memory,
        )
        write_request(directory, request)
        ended = run_module(
            pass_worker.__name__, directory, timeout=self.limits.timeout, environment=os.environ
        )
        told = dict(pass_worker.entries(directory))
        failure = None
        if ended is not None or "done" not in told:
            failure = told.get("failed") or ended or "the process ended early"
        return Ran(graph, directory, failure)

    def once(
        self, graph: Graph, item: Pass, limit: int | None, *, strict: bool = False
    ) -> tuple[PassResult | None, str | None]:
        """Run one pass once; return what it made, or why it did not."""
        ran = self.run(graph, (item,), limit=limit, once=True, strict=strict)
        return (None if ran.failure else pass_worker.result_of(ran.directory)), ran.failure

    def new_directory(self) -> Path:
        """Return a new directory."""
        self._count += 1
        directory = self.directory / str(self._count)
        directory.mkdir()
        return directory
