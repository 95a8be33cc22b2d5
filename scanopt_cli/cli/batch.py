"""Loading for commands: warnings as lines on stderr, and errors of one file among several."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scanopt_cli.cli.console import tell
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.pytensor_log import told_failures
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from scanopt_cli.ir.graph import Graph

until_command_ends = ExitStack()
"""What a command holds on to, or its work on one of several files: `run` and `Batch` let it go."""


def load_graph(
    path: Path, *, trust: bool, allow_packages: Sequence[str] | None, recorded: bool = False
) -> Graph:
    """Load ``path``, with its ``recorded`` calls or without; print notes and warnings on stderr.

    An error that nobody expected, in what the command does next, is the file's if its graph is not
    in order.
    """
    from pytensor.configdefaults import config

    from scanopt_cli.ir.folding import bounded_folding
    from scanopt_cli.serialization.loading import load

    until_command_ends.enter_context(bounded_folding())
    until_command_ends.enter_context(told_failures())
    # Where in scanopt a variable was made helps nobody, and to find out takes half of the time.
    until_command_ends.enter_context(config.change_flags(traceback__limit=0))
    # What PyTensor thinks of this machine or of its own calls does not concern the file.
    until_command_ends.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        packages = allow_packages or ()
        graph = load(path, trust=trust, allow_packages=packages, recorded=recorded)
    for note in [*(str(warning.message) for warning in caught), *graph.notes]:
        tell(f"note: {path}: {note}")
    return graph


@dataclass(frozen=True, slots=True)
class Failure:
    """What stands in JSON in place of the result of a file: why there is none."""

    source: str
    error: str


class Batch:
    """Files that a command takes one after the other: an error of one does not stop the others.

    ``results`` has one entry a file, in their order: what the command puts there, or a `Failure`.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.results: list[Any] = []
        self._is_lone = len(paths) == 1
        self._errors: list[ScanoptError] = []

    @contextmanager
    def attempt(self, path: Path) -> Iterator[None]:
        """Keep an error that the work on ``path`` ends with, and print it at once."""
        try:
            # What was held on to for this file is not held for the next.
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
            The error of a file that was the only one.
        """
        if self._is_lone and self._errors:
            raise self._errors[0]
        return ExitCode.FAILED if self._errors else code
