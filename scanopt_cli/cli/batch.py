"""Load graphs for commands: print warnings on stderr, and keep errors of single files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scanopt_cli.cli.console import tell
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.limits import limited
from scanopt_cli.cli.pytensor_log import reported_failures
from scanopt_cli.errors import ScanoptError
from scanopt_cli.text import plural

if TYPE_CHECKING:
    from scanopt_cli.ir.graph import Graph

until_command_ends = ExitStack()
"""Contexts that last for a command, or for its work on one file; `run` and `Batch` close them."""


def load_graph(
    path: Path, *, trust: bool, allow_packages: Sequence[str] | None, recorded: bool = False
) -> Graph:
    """Load ``path``, with its ``recorded`` calls or without; print notes and warnings on stderr.

    Until the command is done with the file, constant folding is bounded, warnings are ignored, and
    PyTensor's log of failed rewriters becomes one line. Without ``trust``, processor time and
    memory of the loading are limited.
    """
    from pytensor.configdefaults import config

    from scanopt_cli.analysis.provenance.locating import locate
    from scanopt_cli.ir.folding import bounded_folding
    from scanopt_cli.ir.graph import listed_names
    from scanopt_cli.serialization.loading import load

    until_command_ends.enter_context(bounded_folding())
    until_command_ends.enter_context(reported_failures())
    # Where scanopt makes a variable is of no interest, and recording it takes half of the time.
    until_command_ends.enter_context(config.change_flags(traceback__limit=0))
    # PyTensor's warnings about this machine or about its own calls do not concern the file.
    until_command_ends.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    with warnings.catch_warnings(record=True) as caught, limited(path, trust=trust):
        warnings.simplefilter("always", UserWarning)
        packages = allow_packages or ()
        graph = load(path, trust=trust, allow_packages=packages, recorded=recorded)
    locate(graph.fgraph)
    shared = graph.shared
    found = [f"{plural(len(shared), 'shared variable')}: {listed_names(shared)}"] if shared else []
    for note in [*(str(warning.message) for warning in caught), *graph.notes, *found]:
        tell(f"note: {path}: {note}")
    return graph


@dataclass(frozen=True, slots=True)
class Failure:
    """The entry in JSON for a file without a result: its error."""

    source: str
    error: str


class Batch:
    """Files that a command handles one after the other; an error in one does not stop the others.

    ``results`` has one entry for each file, in order: what the command appends, or a `Failure`.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.results: list[Any] = []
        self._is_lone = len(paths) == 1
        self._errors: list[ScanoptError] = []

    @contextmanager
    def attempt(self, path: Path) -> Iterator[None]:
        """Keep a `ScanoptError` from the work on ``path``; print it now if there are more files."""
        try:
            # Contexts entered for this file end before the next.
            with until_command_ends:
                yield
        except ScanoptError as error:
            self._errors.append(error)
            self.results.append(Failure(str(path), str(error)))
            if not self._is_lone:
                tell(f"error: {error}")

    def finish(self, code: ExitCode) -> ExitCode:
        """Return the exit code: ``code``, unless a file failed.

        Raises
        ------
        ScanoptError
            The error of the file, if it is the only one.
        """
        if self._is_lone and self._errors:
            raise self._errors[0]
        return ExitCode.FAILED if self._errors else code
