"""What is done here with a pickle whose graph is to be worked on elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.limits import patience
from scanopt_cli.cli.session import Session, session
from scanopt_cli.serialization.files import Blob


@dataclass(frozen=True, slots=True)
class AsData:
    """What was read of a file, as data."""

    files: tuple[Blob, ...]


@dataclass(frozen=True, slots=True)
class MakingData[T](Task[T | AsData]):
    """Makes data of what a ``task`` is to work on; where that cannot be, does the work itself."""

    task: Task[T]

    def read(self, path: Path) -> Sequence[Blob]:
        """Return what the task reads."""
        return self.task.read(path)

    def work(self, path: Path, files: Sequence[Blob], title: str, /) -> Done[T | AsData]:
        """Return data, or what the task makes of the file."""
        from scanopt_cli.serialization.converting import as_data

        may = self.permissions()
        how: Any = {"trust": may.trust, "allow_packages": may.allow_packages}
        try:
            with session(*files, only_read=True, **how):
                return Done(AsData(tuple(as_data(file, **how) for file in files)))
        except Exception:
            return self.task.work(path, files, title)  # which tells what is wrong, if anything is

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return self.task.permissions()

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        whole = self.task.patience(path)
        reading = patience(path, trust=False, only_read=True)
        return None if whole is None or reading is None else whole + reading
