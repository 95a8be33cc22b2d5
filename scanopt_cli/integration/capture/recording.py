"""`capture`: save every graph with a loop that a program compiles to a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pytensor.compile.io import SymbolicOutput
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.op import Scan

from scanopt_cli.analysis.provenance.locating import locate
from scanopt_cli.environment import CAPTURE_ERRORS, CAPTURE_SLOW
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.integration.capture.captured_graph import ALL, CapturedGraph, Wanted, warn
from scanopt_cli.integration.capture.directory import made
from scanopt_cli.integration.capture.hooks import (
    FirstCall,
    listen,
    mode_of_compilation,
    stop_listening,
)
from scanopt_cli.integration.capture.origin import CaptureOrigin, origin
from scanopt_cli.integration.scan_calls import recorded_scan_calls
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.presentation import Presented


class Capture(Presented):
    """The graphs captured so far.

    Each graph is a file ``NUMBER_NAME.scanopt`` in ``directory``; one with an Op that is no data is
    a pickle, ``NUMBER_NAME.pkl``. It is the graph that the program compiles, before any rewrite,
    with its shared variables, and updates as the last outputs. ``NAME`` is that of the function,
    else what the program asked PyMC for (``dlogp``), else the first output that has a name, else
    the line of the program. The values of the graph's first call, shared variables included, are
    beside it in ``NUMBER_NAME.values.npz``. What each graph is, and how long it took to compile, is
    in ``index.json``.
    """

    def __init__(self, directory: Path, wanted: Wanted = ALL) -> None:
        self.directory = directory
        self._wanted = wanted
        self._files: list[Path] = []
        self._digests: set[str] = set()

    @classmethod
    def of_environment(cls, directory: str) -> Capture:
        """Return the capture that `run_captured` asks a program for."""
        slow = os.environ.get(CAPTURE_SLOW)
        wanted = Wanted(float(slow) if slow else None, bool(os.environ.get(CAPTURE_ERRORS)))
        return cls(Path(directory), wanted)

    @property
    def files(self) -> tuple[Path, ...]:
        """The graph files written so far, in the order of compilation."""
        return tuple(self._files)

    def compiling(
        self, fgraph: FunctionGraph, outputs: Sequence[SymbolicOutput], name: str | None
    ) -> FirstCall | None:
        """Save ``fgraph`` if it has a loop and is new; print problems on stderr, raise nothing.

        If only some graphs are wanted, it is saved once it is known to be one of them.
        """
        try:
            return self._captured(fgraph, outputs, name)
        except Exception as error:
            warn(f"a graph of function {name or '(unnamed)'} is not kept", error)
            return None

    def _captured(
        self, fgraph: FunctionGraph, outputs: Sequence[SymbolicOutput], name: str | None
    ) -> CapturedGraph | None:
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
        locate(graph.fgraph)

        def wrote(path: Path) -> None:
            self._digests.add(identity)
            self._files.append(path)

        made = CapturedGraph(
            graph=graph,
            name=next(filter(None, (name, caller.name, *asked, place, "graph"))),
            function=name,
            origin=caller,
            mode=mode_of_compilation(),
            directory=self.directory,
            wanted=self._wanted,
            is_new=lambda: identity not in self._digests,
            wrote=wrote,
        )
        if self._wanted.is_all:
            made.keep()
        return made


@contextmanager
def capture(
    directory: str | os.PathLike[str] = "scanopt-capture",
    *,
    on_slow: float | None = None,
    on_error: bool = False,
) -> Iterator[Capture]:
    """Save every graph with a Scan that is compiled inside the ``with`` block.

    Scans inside OpFromGraph and Blockwise count; a graph compiled twice is saved once. Capture does
    not change what the program computes; a graph that cannot be saved costs one line on stderr.

    Parameters
    ----------
    directory
        Where the files go; created if it is missing. Existing files stay.
    on_slow
        Save only graphs whose compilation took so many seconds or more. The first call counts,
        since Numba and JAX compile in it.
    on_error
        Save only graphs whose compilation, or first call, raised an error; with ``on_slow``, such
        graphs as well.

    Raises
    ------
    ScanoptError
        If ``directory`` cannot be created or is not a directory.
    """
    kept = Capture(made(directory), Wanted(on_slow, on_error))
    listen(kept)
    try:
        with recorded_scan_calls():
            yield kept
    finally:
        stop_listening(kept)


def _notes(name: str | None, caller: CaptureOrigin, fgraph: FunctionGraph) -> tuple[str, ...]:
    place = f" at {caller.place}" if caller.place else ""
    notes = [f"Captured from {caller.what(name)}{place}, as the program built it."]
    updates: dict[int, int] = fgraph.update_mapping or {}  # type: ignore[assignment]
    notes += [
        f"Output {output} is the new value of {fgraph.inputs[updated].name or 'a shared variable'}."
        for output, updated in updates.items()
    ]
    return tuple(notes)
