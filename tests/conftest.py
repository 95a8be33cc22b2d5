"""What every test runs under: a PyTensor that is the same everywhere, and Hypothesis profiles."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

_COMMON = {
    "deadline": None,
    # Graphs are slow to draw on a busy machine, which says nothing about the test.
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("quick", max_examples=6, derandomize=True, **_COMMON)
settings.register_profile("deep", max_examples=150, derandomize=True, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def _set_up_pytensor() -> None:
    """Choose how PyTensor runs, before anything imports it.

    Without a C compiler an evaluation costs milliseconds, and is the same on every machine, and so
    does a compilation where the default mode is the virtual machine in Python, not Numba. Nor is
    it noted of each variable which line made it, which takes an eighth of the time. What
    Numba compiles is kept from run to run, apart from the user's own. Processes that a test
    starts, and the workers of a parallel run, inherit the setting.
    """
    os.environ["SCANOPT_STRICT"] = "1"  # an error of a pass fails the test
    os.environ["SCANOPT_CACHE"] = "off"  # each run rewrites what it tests
    os.environ["SCANOPT_JOBS"] = "0"  # workers are for the tests that are about them
    versions = "-".join(version(package) for package in ("pytensor", "numba", "numpy"))
    directory = Path(__file__).parents[1] / ".pytest_cache" / f"compiled-{versions}"
    given = os.environ.get("PYTENSOR_FLAGS", "")
    flags = f'cxx=,linker=vm,traceback__limit=0,base_compiledir="{directory}"'
    os.environ["PYTENSOR_FLAGS"] = f"{flags},{given}"


if "PYTEST_XDIST_WORKER" not in os.environ:
    _set_up_pytensor()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it starts in the background ignore ctrl-C, which some tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--share``, and ``--figures`` of benchmarks."""
    parser.addoption(
        "--share",
        type=_share,
        default=(1, 1),
        metavar="K/N",
        help="run part K of N, counted from 1, in which tests are by their names",
    )
    parser.addoption(
        "--figures", metavar="DIR", help="write the tables that benchmarks make as DIR/NAME.md"
    )


def _share(text: str) -> tuple[int, int]:
    number, count = map(int, text.split("/"))
    if not 1 <= number <= count:
        raise ValueError(text)
    return number, count


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to ``make test-deep`` all but a few parameter sets of ``tiered(every=n)``: one in n.

    Which ones is decided by their names, since every n-th might be the same in one parameter.
    """
    seen: set[str] = set()
    for item in items:
        mark = item.get_closest_marker("tiered")
        if mark is None or "every" not in mark.kwargs:
            continue
        test = item.nodeid.partition("[")[0]
        if test in seen and crc32(item.nodeid.encode()) % mark.kwargs["every"]:
            item.add_marker(pytest.mark.deep)
        seen.add(test)
    number, count = config.getoption("share")
    left = [item for item in items if crc32(item.nodeid.encode()) % count != number - 1]
    config.hook.pytest_deselected(items=left)
    out = set(left)
    items[:] = [item for item in items if item not in out]


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, not again and again among all that was imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 25, 100)


@pytest.fixture
def evaluated_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Let `verify` and `trace` evaluate in this process, which is faster than in another."""
    from pytensor.compile.inner_function import HasInnerFunction
    from pytensor.scan.op import Scan

    from scanopt_cli.tracing import child
    from scanopt_cli.verification import spawning, verifying, worker

    def run_child(
        request: Any,
        _progress: object = None,
        *,
        worker: str = worker.__name__,
        then: Callable[[Path], None] | None = None,
        **_: object,
    ) -> Any:
        spawning.write_request(tmp_path, request)
        import_module(worker).main(str(tmp_path))
        if then is not None:
            then(tmp_path)
        return spawning._record(tmp_path, None)

    monkeypatch.setattr(verifying, "run_child", run_child)
    monkeypatch.setattr(child, "run_child", run_child)
    # What the worker sets for its whole process.
    monkeypatch.setattr(worker, "limit_process", lambda timeout: None)
    for place in (Scan, HasInnerFunction):
        monkeypatch.setattr(place, "link_mode", place.link_mode)
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)


@pytest.fixture
def registered_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """The built-in rules alone, until it is called with entry points that add some."""
    from scanopt_cli.rules import rule_registry

    def register(*values: str) -> None:
        points = tuple(EntryPoint("mine", v, rule_registry.ENTRY_POINT_GROUP) for v in values)
        monkeypatch.setattr(rule_registry, "entry_points", lambda group: points)
        rule_registry.rules.cache_clear()

    register()
    yield register
    monkeypatch.undo()
    rule_registry.rules.cache_clear()
