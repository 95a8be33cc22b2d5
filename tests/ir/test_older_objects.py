"""What was made before a compilation is set aside from garbage collection, and given back."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from scanopt_cli.ir.older_objects import collect_rarely, is_own, older_objects_set_aside


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _nothing_is_set_aside() -> Iterator[None]:
    gc.unfreeze()  # the tests set aside what they import
    yield
    gc.enable()
    gc.freeze()


def test_what_is_dropped_inside_is_collected_inside():
    with older_objects_set_aside():
        dropped = weakref.ref(_Cycle())
        gc.collect()
        assert dropped() is None


def test_what_was_dropped_before_is_collected_after():
    gc.disable()
    dropped = weakref.ref(_Cycle())
    gc.enable()
    with older_objects_set_aside():
        gc.collect()
        assert dropped() is not None
    gc.collect()
    assert dropped() is None


def test_an_error_gives_them_back():
    with pytest.raises(ValueError, match="inside"), older_objects_set_aside():
        raise ValueError("inside")
    assert not gc.get_freeze_count()


def test_the_last_of_several_threads_gives_them_back():
    is_entered, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with older_objects_set_aside():
            is_entered.set()
            may_end.wait(10)

    thread = threading.Thread(target=other)
    with older_objects_set_aside():
        thread.start()
        assert is_entered.wait(10)
    assert gc.get_freeze_count()
    may_end.set()
    thread.join()
    assert not gc.get_freeze_count()


def test_a_program_that_sets_objects_aside_keeps_them_so():
    gc.freeze()
    with older_objects_set_aside():
        pass
    assert gc.get_freeze_count()


def test_a_program_without_collection_has_none():
    gc.disable()
    with older_objects_set_aside():
        assert not gc.get_freeze_count()
    assert not gc.isenabled()


def test_a_process_of_its_own_collects_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scanopt_cli.ir.older_objects._is_own", False)
    before = gc.get_threshold()
    assert not is_own()
    try:
        collect_rarely()
        assert is_own()
        assert gc.get_threshold() == (10_000, *before[1:])
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
