"""`capture`: save every graph with a loop that a program compiles to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytensor.compile.io import SymbolicOutput
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.op import Scan

from scanopt_cli.analysis.provenance.locating import locate
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import LoadError
from scanopt_cli.integration.capture.directory import made, reserve
from scanopt_cli.integration.capture.hooks import FirstCall, listen, stop_listening
from scanopt_cli.integration.capture.origin import CaptureOrigin, origin
from scanopt_cli.integration.scan_calls import recorded_scan_calls
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.presentation import Presented
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from scanopt_cli.serialization.values import write_values


class Capture(Presented):
    """The graphs captured so far.

    Each graph is a file ``NUMBER_NAME.pkl`` in ``directory``. It is the graph that the program
    compiles, before any rewrite, with its shared variables, and updates as the last outputs.
    ``NAME`` is that of the function, else what the program asked PyMC for (``dlogp``), else the
    first output that has a name, else the line of the program. The values of the graph's first
    call, shared variables included, are beside it in ``NUMBER_NAME.values.npz``.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: list[Path] = []
        self._digests: set[str] = set()

    @property
    def files(self) -> tuple[Path, ...]:
        """The graph files written so far, in the order of compilation."""
        return tuple(self._files)

    def compiling(
        self, fgraph: FunctionGraph, outputs: Sequence[SymbolicOutput], name: str | None
    ) -> FirstCall | None:
        """Save ``fgraph`` if it has a loop and is new; print problems on stderr, raise nothing."""
        try:
            return self._keep(fgraph, outputs, name)
        except Exception as error:
            _warn(f"a graph of function {name or '(unnamed)'} is not kept", error)
            return None

    def _keep(
        self, fgraph: FunctionGraph, outputs: Sequence[SymbolicOutput], name: str | None
    ) -> FirstCall | None:
        if not any(isinstance(core_op(node.op), Scan) for node in walk(fgraph)):
            return None
        identity = digest(fgraph)
        if identity in self._digests:
            return None
        asked = [spec.variable.name for spec in outputs]
        caller = origin()
        # Copies of shared variables have no default updates: here, updates are outputs.
        copied, _ = fgraph.clone_get_equiv(check_integrity=False, attach_feature=False)
        graph = replace(
            as_graph(copied),
            output_names=(*asked, *[None] * (len(fgraph.outputs) - len(asked))),
            notes=_notes(name, caller, fgraph),
        )
        place = (caller.place or "").replace(".py:", "_")
        names = (name, caller.name, *asked, place, "graph")
        locate(graph.fgraph)
        path = reserve(self.directory, next(filter(None, names)))
        try:
            save(graph, path, trust=True)
        except BaseException:
            path.unlink()
            raise
        try:
            load(path, recorded=False)
        except LoadError as error:
            _warn("a graph is kept that will not load without --trust", error)
        self._digests.add(identity)
        self._files.append(path)
        return lambda values: _write_first_call(path, values)


@contextmanager
def capture(directory: str | os.PathLike[str] = "scanopt-capture") -> Iterator[Capture]:
    """Save every graph with a Scan that is compiled inside the ``with`` block.

    Scans inside OpFromGraph and Blockwise count; a graph compiled twice is saved once. Capture does
    not change what the program computes; a graph that cannot be saved costs one line on stderr.

    Parameters
    ----------
    directory
        Where the files go; created if it is missing. Existing files stay.

    Raises
    ------
    ScanoptError
        If ``directory`` cannot be created or is not a directory.
    """
    kept = Capture(made(directory))
    listen(kept)
    try:
        with recorded_scan_calls():
            yield kept
    finally:
        stop_listening(kept)


def _write_first_call(path: Path, values: Sequence[Any]) -> None:
    try:
        write_values(path, [values])
    except Exception as error:
        _warn(f"the values of the first call of {path} are not kept", error)


def _notes(name: str | None, caller: CaptureOrigin, fgraph: FunctionGraph) -> tuple[str, ...]:
    place = f" at {caller.place}" if caller.place else ""
    notes = [f"Captured from {caller.what(name)}{place}, as the program built it."]
    updates: dict[int, int] = fgraph.update_mapping or {}  # type: ignore[assignment]
    notes += [
        f"Output {output} is the new value of {fgraph.inputs[updated].name or 'a shared variable'}."
        for output, updated in updates.items()
    ]
    return tuple(notes)


def _warn(what: str, error: Exception) -> None:
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"scanopt: {what}: {text}", file=sys.stderr)
