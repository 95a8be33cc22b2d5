"""A pytest plugin that finds which lines each test executes, or runs the tests that it is given.

With ``MUTATION_COVERAGE``, each process writes into that directory which lines of the package its
tests executed; `tests_by_line` reads it. A line whose result a test takes from a cache, filled by
an earlier test, is not among them. With ``MUTATION_TESTS``, only the tests whose ids are in that
JSON file run, in its order.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

_TOOL = sys.monitoring.PROFILER_ID
_EVENTS = sys.monitoring.events


class Recorder:
    """Records the lines of one process's tests."""

    def __init__(self, sources: Path) -> None:
        self._sources = f"{sources}{os.sep}"
        self._seen: set[tuple[str, int]] = set()
        self._tests: list[tuple[str, float, list[tuple[str, int]]]] = []
        sys.monitoring.use_tool_id(_TOOL, "mutation")
        sys.monitoring.register_callback(_TOOL, _EVENTS.LINE, self._line)

    def _line(self, code: CodeType, line: int) -> object:
        if code.co_filename.startswith(self._sources):
            self._seen.add((code.co_filename.removeprefix(self._sources), line))
        return sys.monitoring.DISABLE

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record one test, the fixtures that it sets up among it."""
        self._seen.clear()
        sys.monitoring.restart_events()
        sys.monitoring.set_events(_TOOL, _EVENTS.LINE)
        begin = time.perf_counter()
        try:
            return (yield)
        finally:
            sys.monitoring.set_events(_TOOL, 0)
            self._tests.append((item.nodeid, time.perf_counter() - begin, sorted(self._seen)))

    def pytest_sessionfinish(self) -> None:
        """Write what was recorded."""
        file = Path(os.environ["MUTATION_COVERAGE"]) / f"{uuid.uuid4()}.json"
        file.write_text(json.dumps(self._tests))


def pytest_configure(config: pytest.Config) -> None:
    """Record in this process, if asked to."""
    if "MUTATION_COVERAGE" in os.environ:
        config.pluginmanager.register(Recorder(Path("scanopt_cli").resolve()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests, if they are given."""
    if "MUTATION_TESTS" in os.environ:
        ids = json.loads(Path(os.environ["MUTATION_TESTS"]).read_text())
        by_id = {item.nodeid: item for item in items}
        items[:] = [by_id[name] for name in ids]


def tests_by_line(directory: Path) -> dict[tuple[str, int], dict[str, float]]:
    """Return, for each line of each file, the tests that execute it and how many seconds each took.

    The fastest come first.
    """
    tests = [test for file in directory.glob("*.json") for test in json.loads(file.read_text())]
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for name, seconds, lines in sorted(tests, key=lambda test: test[1]):
        for file, line in lines:
            found[file, line][name] = seconds
    return found
