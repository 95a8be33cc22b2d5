"""``scanopt cache``: how much is kept on disk, and removing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytensor.configdefaults import config

from scanopt_cli import store as store_module
from scanopt_cli.store import Store
from support.command_line import scanopt


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store(tmp_path / "kept", 1 << 20)
    monkeypatch.setattr(store_module, "user_store", lambda: made)
    monkeypatch.setenv("SCANOPT_CACHE", "on")
    return made


def test_what_is_kept_is_told_and_removed(store: Store) -> None:
    store.put("a", bytes(900))
    store.put("b", bytes(1000))
    told = scanopt("cache")
    assert (told.code, told.err) == (0, "")
    assert "2 results, 2.0 kB of at most 1.0 MB" in told.out
    assert f"in {store.directory}" in " ".join(told.out.split())
    assert scanopt("cache", "--info").out == told.out
    cleared = scanopt("cache", "--clear")
    assert cleared.code == 0
    assert "removed 2 results" in cleared.out
    assert "0 results, 0 bytes" in scanopt("cache").out
    assert "removed 0 results" in scanopt("cache", "--clear").out


def test_as_json(store: Store) -> None:
    store.put("a", bytes(900))
    found = json.loads(scanopt("cache", "--format", "json").out)
    wanted = {"entries": 1, "limit": 1 << 20, "removed": 0, "problem": None}
    assert found.items() >= wanted.items()
    assert found["directory"] == str(store.directory)
    assert json.loads(scanopt("cache", "--clear", "--format", "json").out)["removed"] == 1


def test_why_nothing_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", b"")
    store.directory.chmod(0o777)
    assert "others may write to" in scanopt("cache").out
    store.directory.chmod(0o700)
    monkeypatch.setenv("SCANOPT_CACHE", "off")
    assert "nothing is kept or read: SCANOPT_CACHE is off" in scanopt("cache").out


def test_what_cannot_be_removed_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", b"")

    def fail(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", fail)
    done = scanopt("cache", "--clear")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"scanopt: error: {store.directory}: nothing could be removed\n"


def test_the_store_is_where_pytensor_keeps_compiled_code() -> None:
    store = store_module.user_store()
    assert store.directory == Path(config.base_compiledir) / "scanopt"
    assert store.limit == store_module.LIMIT << 20
