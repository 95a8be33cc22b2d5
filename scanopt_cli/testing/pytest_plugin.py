"""The plug-in for pytest: what tests compile is checked, as `scanopt check` checks files.

pytest finds it by an entry point, wherever scanopt is installed. Until a test asks for it, or the
option ``--scanopt``, it does nothing, and imports nothing of PyTensor's.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scanopt_cli.text import comma_separated, few

if TYPE_CHECKING:
    from scanopt_cli.ir.graph import GraphLike
    from scanopt_cli.rules.graph_checking import CheckResult
    from scanopt_cli.testing.checked_compilations import CheckSession, CompilationCheck

_SESSION: pytest.StashKey[CheckSession] = pytest.StashKey()
_WATCH: pytest.StashKey[CompilationCheck] = pytest.StashKey()
_FOUND: pytest.StashKey[list[list[str]]] = pytest.StashKey()
_REPORTED = "scanopt_findings"
"""The attribute of a report that has the findings, which workers of pytest-xdist send with it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--scanopt`` and the setting of that name."""
    text = "check the loops of what tests compile, and fail those in which anything is found"
    group = parser.getgroup("scanopt")
    group.addoption("--scanopt", action="store_true", help=text)
    parser.addini("scanopt", type="bool", default=False, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; collect what is found in all tests."""
    config.addinivalue_line(
        "markers",
        "scanopt(select=None, ignore=None, check=True): check the loops of what the test compiles, "
        "by the rules whose codes begin so; not at all, if check is false",
    )
    config.pluginmanager.register(_Summary(), "scanopt-summary")


class ScanoptCheck:
    """What the fixture gives: call it to check a graph."""

    def __init__(self, watch: CompilationCheck) -> None:
        self._watch = watch

    def __call__(
        self,
        graph: GraphLike,
        *,
        select: str | Sequence[str] | None = None,
        ignore: str | Sequence[str] | None = None,
    ) -> CheckResult:
        """Check a graph as `scanopt_cli.check` does, and fail the test if anything is found."""
        __tracebackhide__ = True
        from scanopt_cli.testing.checked_compilations import Codes, Report

        codes = self._watch.codes
        more = comma_separated(ignore)
        own = Codes(comma_separated(select) or codes.select, (*more, *codes.ignore))
        result = self._watch.session.check(graph, own)
        if result.findings:
            pytest.fail("\n".join(Report({"the graph": result.findings}).lines()))
        return result


@pytest.fixture
def scanopt_check(request: pytest.FixtureRequest) -> ScanoptCheck:
    """Check what the test compiles, and fail it if anything is found; call it to check a graph."""
    return ScanoptCheck(_watch(request.node))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Begin to watch a test that is to be checked, with its fixtures."""
    if _is_checked(item):
        _watch(item)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that did not fail by itself, if anything is found."""
    try:
        result = yield
    finally:
        watch = item.stash.get(_WATCH, None)
        if watch is not None:
            watch.stop()
    report = None if watch is None else watch.report()
    if report:
        item.stash[_FOUND] = report.distinct()
        pytest.fail("\n".join(report.lines()), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """End to watch a test that was never called."""
    watch = item.stash.get(_WATCH, None)
    if watch is not None:
        watch.stop()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the report of a test have what was found."""
    report = yield
    if call.when == "call" and _FOUND in item.stash:
        setattr(report, _REPORTED, item.stash[_FOUND])
    return report


class _Summary:
    """Tells each distinct finding once, after all tests, and in which tests it is."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._tests: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what was found in a test, here or by a worker."""
        for key, text in getattr(report, _REPORTED, ()):
            self._texts.setdefault(key, text)
            self._tests.setdefault(key, []).append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the findings."""
        if not self._texts:
            return
        terminalreporter.section("scanopt check")
        for key, text in self._texts.items():
            tests = list(dict.fromkeys(self._tests[key]))
            terminalreporter.line(f"{text} ({few(tests, 1)})")


def _is_checked(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("scanopt")
    if marker is not None:
        return bool(marker.kwargs.get("check", True))
    return bool(item.config.getoption("scanopt") or item.config.getini("scanopt"))


def _watch(item: pytest.Item) -> CompilationCheck:
    """Return what watches a test; begin to watch, unless the test is not to be checked."""
    from scanopt_cli.errors import ScanoptError
    from scanopt_cli.testing.checked_compilations import CheckSession, CompilationCheck

    if _WATCH in item.stash:
        return item.stash[_WATCH]
    stash, root = item.config.stash, item.config.rootpath
    markers = [_arguments(marker) for marker in item.iter_markers("scanopt")]
    try:
        if _SESSION not in stash:
            stash[_SESSION] = CheckSession.of(root)
        session = stash[_SESSION]
        codes = session.codes(
            _below(item.path, root),
            next(filter(None, (comma_separated(given.get("select")) for given in markers)), ()),
            [code for given in markers for code in comma_separated(given.get("ignore"))],
        )
    except ScanoptError as error:
        pytest.fail(str(error), pytrace=False)
    watch = item.stash[_WATCH] = CompilationCheck(session, codes)
    if not any(given.get("check", True) is False for given in markers[:1]):
        watch.start()
    return watch


def _arguments(marker: pytest.Mark) -> dict[str, Any]:
    unknown = marker.kwargs.keys() - {"select", "ignore", "check"}
    if marker.args or unknown:
        pytest.fail(
            "the marker scanopt takes select, ignore and check by name, and nothing else",
            pytrace=False,
        )
    return dict(marker.kwargs)


def _below(path: Path, root: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path
