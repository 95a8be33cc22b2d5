"""Files that a command handles one after the other, of which some may fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scanopt_cli.cli.console import tell
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.errors import ScanoptError


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
        """Record a `ScanoptError` of the work on ``path``; print it if there are more files."""
        try:
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
