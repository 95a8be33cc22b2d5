"""The ways in which a command works on many graphs: by workers, by Dask, from what is kept."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_WORKERS = 2
_STARTING = 60


@dataclass(frozen=True, slots=True)
class Setting:
    """What a command is run with: options, variables, and processes that work for it."""

    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a command.

    Attributes
    ----------
    name
        What it is called in tables.
    option
        The option that the command must have.
    setting
        Sets it up; called with a directory of its own.
    needs
        A package that scanopt does not need.
    is_repeated
        Whether the command is run before, so that it finds what it has kept.
    """

    name: str
    option: str
    setting: Callable[[Path], AbstractContextManager[Setting]]
    needs: str | None = None
    is_repeated: bool = False

    def suits(self, command: str) -> bool:
        """Whether the command has the option, and the package is installed."""
        is_there = self.needs is None or find_spec(self.needs) is not None
        return is_there and self.option in _help(command)


@cache
def _help(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "scanopt_cli", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _with(*options: str, **environment: str) -> Callable[[Path], AbstractContextManager[Setting]]:
    return lambda _folder: nullcontext(Setting(options, environment))


def _keeping(folder: Path) -> AbstractContextManager[Setting]:
    """Keep results, in the directory; it is that of PyTensor, too."""
    variables = {"SCANOPT_CACHE": "", "PYTENSOR_FLAGS": f"base_compiledir={folder / 'kept'}"}
    return nullcontext(Setting(("--jobs", str(_WORKERS)), variables))


def has_kept(folder: Path) -> bool:
    """Whether commands have kept anything in the directory of `_keeping`."""
    return next((folder / "kept").rglob("*.kept"), None) is not None


@contextmanager
def _cluster(folder: Path) -> Iterator[Setting]:
    """Start Dask's scheduler and workers, as on machines of their own, and end them."""
    from distributed import Client

    address = folder / "scheduler.json"
    dask = (sys.executable, "-m", "dask")
    file = ("--scheduler-file", str(address))
    commands = [
        (*dask, "scheduler", *file, "--port", "0", "--no-dashboard"),
        *[
            (*dask, "worker", *file, "--nthreads", "1", "--no-dashboard", "--no-nanny")
            for _ in range(_WORKERS)
        ],
    ]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            running.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            end = time.monotonic() + _STARTING
            while not address.exists():
                if time.monotonic() > end or running[0].poll() is not None:
                    raise RuntimeError("Dask's scheduler does not start")
                time.sleep(0.1)
        found = json.loads(address.read_text(encoding="utf-8"))["address"]
        with Client(found, timeout=_STARTING) as client:
            client.wait_for_workers(_WORKERS, timeout=_STARTING)
        yield Setting(("--cluster", found), {}, tuple(each.pid for each in running[1:]))
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait()


WAYS = (
    Way("1 worker", "--jobs", _with("--jobs", "1")),
    Way("2 workers", "--jobs", _with("--jobs", "2")),
    Way("2 workers of Dask", "--cluster", _cluster, needs="distributed"),
    Way("again, from what is kept", "--jobs", _keeping, is_repeated=True),
)
"""All of them; those that a command lacks are left out."""
