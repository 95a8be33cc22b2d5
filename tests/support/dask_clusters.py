"""Schedulers and workers of Dask, in processes of their own on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import scanopt_cli

ROOT = Path(scanopt_cli.__file__).parents[1]


@dataclass
class DaskCluster:
    """A scheduler, and the workers that are started for it."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def scheduler_file(self) -> Path:
        return self.folder / "scheduler.json"

    @property
    def address(self) -> str:
        return str(json.loads(self.scheduler_file.read_text())["address"])

    def start_scheduler(self, *options: str) -> None:
        # It needs no scanopt: one that cannot be imported is found first.
        (self.folder / "nothing" / "scanopt_cli").mkdir(parents=True)
        (self.folder / "nothing" / "scanopt_cli" / "__init__.py").write_text("raise ImportError")
        path = {"PYTHONPATH": str(self.folder / "nothing")}
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", *options, environment=path)
        wait_for(self.scheduler_file.exists)

    def start_worker(
        self,
        *options: str,
        environment: Mapping[str, str] | None = None,
        limits: Callable[[], None] | None = None,
        count: bool = True,
    ) -> subprocess.Popen[bytes]:
        """Start a worker of one thread, unless ``options`` say otherwise, and wait for it."""
        before = self.workers() if count else {}
        started = self._start(
            "worker", "--nthreads", "1", *options, environment=environment, limits=limits
        )
        if count:
            wait_for(lambda: len(self.workers()) > len(before))
        return started

    def workers(self) -> dict[str, Any]:
        """Return what the scheduler says of its workers, by their addresses."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            return dict(client.scheduler_info()["workers"])

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(
        self,
        what: str,
        *options: str,
        environment: Mapping[str, str] | None = None,
        limits: Callable[[], None] | None = None,
    ) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
        log = (self.folder / f"{what}-{len(self.processes)}.log").open("wb")
        more = [] if what == "scheduler" else ["--local-directory", str(self.folder)]
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard"),
                *("--scheduler-file", str(self.scheduler_file), *more, *options),
            ],
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            preexec_fn=limits,
            cwd=self.folder,  # where nothing is imported from
            stdout=log,
            stderr=log,
        )
        self.processes.append(process)
        return process


@contextmanager
def dask_cluster(folder: Path) -> Iterator[DaskCluster]:
    """Start a scheduler; yield it, and end it with the workers that were started for it."""
    cluster = DaskCluster(folder)
    try:
        cluster.start_scheduler()
        yield cluster
    finally:
        cluster.stop()


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait until something is true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.05)
