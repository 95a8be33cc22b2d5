"""Reading a file ends after a bounded time and within a bounded memory, whatever it holds."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from scanopt_cli.cli import limits
from scanopt_cli.cli.limits import limited
from scanopt_cli.errors import LoadError

# These are tests of the limits themselves, which other systems do not have; CI runs Linux.
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux bounds private memory, and Windows has no timer"
)

FILE = Path("a.pkl")


def spend_time() -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        # Whoever reads a file takes any exception for a fault of the file, and goes on.
        with suppress(Exception):
            sum(range(10_000))


def take_memory() -> None:
    np.ones(32 << 20)


def take_memory_and_hide_it() -> None:
    try:
        take_memory()
    except MemoryError:
        raise ValueError("the file is damaged") from None


def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    with pytest.raises(LoadError, match=r"takes more than 0\.2 seconds"):
        limited(FILE)(spend_time)()


def test_work_on_a_file_has_time_by_its_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = tmp_path / "a.pkl", tmp_path / "b.pkl"
    for file in files:
        file.write_bytes(bytes(3 << 10))
    monkeypatch.setattr(limits, "SECONDS", 0)
    monkeypatch.setattr(limits, "SECONDS_FOR_A_KILOBYTE", 0.1)
    with pytest.raises(LoadError, match=r"b\.pkl: take more than 0\.6\d* seconds .* to work on"):
        limited(*files, only_read=False)(spend_time)()


def within(inner_seconds: float) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "SECONDS", inner_seconds)
        limited(Path("inner.pkl"))(spend_time)()


@pytest.mark.parametrize(("outer", "inner", "over"), [(0.2, 9, "outer"), (9, 0.2, "inner")])
def test_of_nested_limits_the_first_holds(
    monkeypatch: pytest.MonkeyPatch, outer: float, inner: float, over: str
) -> None:
    monkeypatch.setattr(limits, "SECONDS", outer)
    with pytest.raises(LoadError, match=over):
        limited(Path("outer.pkl"))(within)(inner)
    assert signal.getsignal(signal.SIGPROF) is signal.SIG_DFL


@pytest.mark.parametrize("take", [take_memory, take_memory_and_hide_it])
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, take: Callable[[], None]) -> None:
    monkeypatch.setattr(limits, "BYTES", 64 << 20)
    with pytest.raises(LoadError, match="GB of memory"):
        limited(FILE)(take)()


def test_what_is_within_the_limits_is_done_and_they_end_with_it() -> None:
    with limited(FILE), limited(FILE):
        assert np.ones(8 << 20).sum() == 8 << 20
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGPROF) is signal.SIG_DFL
    import resource

    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(KeyError), limited(FILE):
        raise KeyError("other")


def test_trusted_files_have_no_limit() -> None:
    with limited(FILE, trust=True):
        assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
