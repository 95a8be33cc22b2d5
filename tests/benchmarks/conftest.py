"""The tables of benchmarks are shown, and written if `--figures` says where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.benchmarks.beside import ROWS
from support.benchmarks.figures import OF_RESULTS, Timed, of_results, show

type ShowTable = Callable[[str, Sequence[str], Sequence[Sequence[str]]], None]

_BESIDE = ("beside PyTensor alone", "PyTensor, µs", "default", "grad", "loop", "MiB", "growth")


@pytest.fixture
def show_table(request: pytest.FixtureRequest) -> ShowTable:
    """What shows a table that a test has made: its name, its heads and its rows."""

    def call(name: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        show(request.config, name, heads, rows)

    return call


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Show the tables that are made of the results of several tests."""
    config = session.config
    for name, rows in config.stash.get(ROWS, {}).items():
        show(config, name, _BESIDE, rows)
    if config.getoption("--figures", default=None) is None:
        return  # pytest-benchmark has tables of its own
    found: dict[str, list[Timed]] = defaultdict(list)
    for result in _results(config):
        file = Path(result.fullname.partition("::")[0]).name
        if file in OF_RESULTS:
            found[file].append(Timed(result.group, result.params or {}, result.stats.min))
    for file, timed in found.items():
        show(config, OF_RESULTS[file].name, *of_results(timed, OF_RESULTS[file]))


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Keep of the machine what a time depends on: not its name, nor all that it can do."""
    from support.benchmarks.figures import machine

    cpu = {key: machine_info.get("cpu", {}).get(key) for key in ("brand_raw", "count", "arch")}
    kept = ("system", "machine", "python_version", "python_implementation")
    info = {key: machine_info[key] for key in kept if key in machine_info}
    machine_info.clear()
    machine_info |= {**info, "cpu": cpu, "text": machine()}


def pytest_benchmark_update_commit_info(commit_info: dict[str, Any]) -> None:
    """Leave out what a folder and a branch are called here."""
    for name in ("project", "branch"):
        commit_info.pop(name, None)


def _results(config: pytest.Config) -> list[Any]:
    session = getattr(config, "_benchmarksession", None)
    return [one for one in getattr(session, "benchmarks", ()) if one.stats.rounds]
