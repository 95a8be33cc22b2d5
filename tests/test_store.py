"""Entries on disk that processes share: whole or absent, of one user, and not too many."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from scanopt_cli import store as store_module
from scanopt_cli.store import Store, Usage, is_on, limit

MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "kept", MIB)


def file_of(store: Store, key: str) -> Path:
    return store.directory / f"{key}.kept"


def test_what_is_put_is_read(store: Store) -> None:
    assert store.get("a") is None
    assert store.put("a", b"content")
    assert store.put("b", b"")
    assert (store.get("a"), store.get("b")) == (b"content", b"")
    assert store.usage().entries == 2
    assert Store(store.directory, MIB).get("a") == b"content"


def test_an_entry_is_replaced(store: Store) -> None:
    store.put("a", b"one")
    store.put("a", b"two")
    assert store.get("a") == b"two"
    assert store.usage().entries == 1


def test_what_is_cleared_is_gone(store: Store) -> None:
    store.put("a", b"content")
    (store.directory / ".unfinished").write_bytes(b"con")
    (store.directory / "somebody.else").write_bytes(b"")
    assert store.clear().entries == 2
    assert store.usage() == Usage(0, 0)
    assert [path.name for path in store.directory.iterdir()] == ["somebody.else"]


def test_nothing_is_cleared_where_nothing_is(store: Store) -> None:
    assert store.clear() == store.usage() == Usage(0, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole[:-1],
        lambda whole: whole + b"x",
        lambda whole: whole[:20],
        lambda whole: b"",
        lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
        lambda whole: b"another program's file",
    ],
)
def test_a_broken_entry_is_none_and_goes(store: Store, change: Any) -> None:
    store.put("a", b"content")
    path = file_of(store, "a")
    path.write_bytes(change(path.read_bytes()))
    assert store.get("a") is None
    assert not path.exists()


def test_an_entry_under_another_key_is_none(store: Store) -> None:
    store.put("a", b"content")
    file_of(store, "a").rename(file_of(store, "b"))
    assert store.get("b") is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_not_read(store: Store, mode: int) -> None:
    store.put("a", b"content")
    file_of(store, "a").chmod(mode)
    assert store.get("a") is None


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o702])
def test_a_directory_that_others_may_write_to_is_not_used(store: Store, mode: int) -> None:
    store.put("a", b"content")
    store.directory.chmod(mode)
    assert "others may write" in str(store.distrust)
    assert store.get("a") is None
    assert not store.put("b", b"content")


def test_files_are_for_their_user_alone(store: Store) -> None:
    store.put("a", b"content")
    assert store.directory.stat().st_mode & 0o777 == 0o700
    assert file_of(store, "a").stat().st_mode & 0o777 == 0o600


def test_entries_of_another_user_are_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"content")
    monkeypatch.setattr(store_module, "_USER", os.geteuid() + 1)
    assert "another user" in str(store.distrust)
    assert store.get("a") is None
    assert not store.put("b", b"content")


def test_a_link_is_not_followed(store: Store, tmp_path: Path) -> None:
    store.put("a", b"content")
    file_of(store, "a").rename(tmp_path / "elsewhere")
    file_of(store, "a").symlink_to(tmp_path / "elsewhere")
    assert store.get("a") is None


def test_a_directory_that_is_a_link_is_not_used(store: Store, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    store.directory.symlink_to(tmp_path / "elsewhere")
    assert "no directory" in str(store.distrust)
    assert not store.put("a", b"content")


def test_a_pipe_is_not_read(store: Store) -> None:
    store.put("a", b"content")
    os.mkfifo(file_of(store, "b"), 0o600)
    assert store.get("b") is None


def test_a_directory_in_place_of_an_entry_is_not_read(store: Store) -> None:
    store.put("a", b"content")
    file_of(store, "b").mkdir()
    assert store.get("b") is None
    assert not store.put("b", b"content")
    assert store.get("b") is None
    assert store.get("a") == b"content"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_a_full_disk_keeps_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store.put("a", b"content")

    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fail)
    assert not store.put("b", b"content")
    assert [path.name for path in store.directory.iterdir()] == ["a.kept"]
    assert store.get("a") == b"content"


def test_a_directory_that_cannot_be_made_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = Store(tmp_path / "file" / "kept", MIB)
    assert not store.put("a", b"content")
    assert store.get("a") is None
    assert store.usage() == Usage(0, 0)


def test_what_is_used_least_goes_first(store: Store) -> None:
    size = MIB // 10
    for number in range(9):
        store.put(str(number), bytes(size))
        os.utime(file_of(store, str(number)), (number, number))
    assert store.get("0") is not None  # it is used, and so it is the newest
    store.put("9", bytes(size))
    assert store.usage().bytes <= 0.8 * MIB
    assert [n for n in range(10) if store.get(str(n)) is None] == [1, 2, 3]


def test_an_entry_that_is_a_quarter_of_all_is_not_kept(store: Store) -> None:
    assert not store.put("a", bytes(MIB // 4))
    assert store.put("b", bytes(MIB // 5))


def test_what_unfinished_writes_left_goes_after_an_hour(store: Store) -> None:
    store.put("a", b"content")
    old, new = store.directory / ".old", store.directory / ".new"
    for path in (old, new):
        path.write_bytes(b"")
    os.utime(old, (time.time() - 4000,) * 2)
    store_module._sizes.clear()  # as another process would
    store.put("b", b"content")
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("", True), ("on", True), ("off", False), (" OFF ", False), ("0", False), ("no", False)],
)
def test_the_switch(monkeypatch: pytest.MonkeyPatch, text: str, wanted: bool) -> None:
    monkeypatch.setenv("SCANOPT_CACHE", text)
    assert is_on() is wanted


@pytest.mark.parametrize(("text", "wanted"), [("", 1024), ("16", 16), ("lots", 1024), ("-1", 1024)])
def test_the_limit(monkeypatch: pytest.MonkeyPatch, text: str, wanted: int) -> None:
    monkeypatch.setenv("SCANOPT_CACHE_LIMIT", text)
    assert limit() == wanted * MIB


_MANY = """
import random, sys
from hashlib import sha256
from pathlib import Path
from scanopt_cli import store as store_module
from scanopt_cli.store import Store

store, seed = Store(Path(sys.argv[1]), 1 << 19), int(sys.argv[2])
numbers = random.Random(seed)
hits = 0
for _ in range(300):
    key = str(numbers.randrange(40))
    content = sha256(key.encode()).digest() * numbers.choice([1, 2000])
    found = store.get(key)
    assert found is None or found[:32] == sha256(key.encode()).digest(), key
    assert found is None or len(found) in (32, 64000), len(found)
    hits += found is not None
    store.put(key, content)
    if numbers.random() < 0.01:
        store.clear()
print(hits)
"""


def test_twenty_processes_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _MANY, str(tmp_path / "kept")]
    running = [
        subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in range(20)
    ]
    found = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * 20
    assert sum(map(int, found)) > 0
    assert Store(tmp_path / "kept", 1 << 19).usage().bytes <= 1 << 19


def test_the_digest_is_of_key_and_content(store: Store) -> None:
    store.put("a", b"content")
    assert sha256(b"a\0content").digest() in file_of(store, "a").read_bytes()


def test_entries_are_looked_at_once_for_many_writes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    trim = Store._trim
    monkeypatch.setattr(Store, "_trim", lambda self: looks.append(1) or trim(self))
    for number in range(100):
        store.put(f"small{number}", b"content")
    assert len(looks) == 1
    large = bytes(store.limit // 10)
    for number in range(30):
        store.put(f"large{number}", large)
        assert store.usage().bytes <= store.limit
    assert len(looks) > 1
