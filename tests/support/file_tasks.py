"""A task of scripts instead of graphs, which shows what becomes of any work on a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.session import Session
from scanopt_cli.serialization.files import DATA_MAGIC, Blob, read_blob


@dataclass(frozen=True)
class Running(Task[tuple[object, int]]):
    """Runs a file as Python, in which ``found`` is what is found, and ``code`` the exit code.

    One that sleeps has so many ``seconds``; others have any time, on a busy machine as well.
    """

    seconds: float | None = None

    def work(self, path: Path, files: Sequence[Blob], title: str, /) -> Done[tuple[object, int]]:
        names = {"found": path.name, "code": ExitCode.CLEAN, "title": title}
        exec(compile(files[0].data, path, "exec"), names)
        return Done((names["found"], os.getpid()), None, ExitCode(names["code"]))

    def permissions(self) -> Session:
        return Session(trust=False, allow_packages=())

    def patience(self, path: Path) -> float | None:
        return self.seconds if "sleep(60)" in path.read_text() else None


class RunningAnywhere(Running):
    """Does so wherever it is sent: what is read looks like data."""

    def read(self, path: Path) -> Sequence[Blob]:
        file = read_blob(path)
        return (Blob(file.name, DATA_MAGIC + file.data),)

    def work(self, path: Path, files: Sequence[Blob], title: str, /) -> Done[tuple[object, int]]:
        (file,) = files
        script = Blob(file.name, file.data.removeprefix(DATA_MAGIC))
        return super().work(path, (script,), title)
