"""Recorded values beside a graph, made to exhaust whoever reads them."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest

from scanopt_cli.serialization.files import values_path
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support.tiers import deep

MOST = 300 << 20


def _header(shape: str, descr: str = "'<f8'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _zip(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _one(data: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    return _zip({"0.0.npy": data}, method)


def _with_declared_size(size: int) -> bytes:
    """A member of 64 MiB that claims to be ``size`` bytes long."""
    data = bytearray(_one(_header("(8388608,)") + bytes(64 << 20)))
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = struct.pack("<I", size)
    return bytes(data)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "bomb": lambda: _zip({f"{n}.0.npy": _header("(8388608,)") + bytes(64 << 20) for n in range(5)}),
    "declared length": lambda: _one(_header("(10**12,)")),
    "declared array": lambda: _one(_header("(1000000000000,)")),
    "negative length": lambda: _one(_header("(-1,)")),
    "many axes": lambda: _one(_header(f"({'0,' * 100})")),
    "deep header": lambda: _one(_header("(" * 4000 + ")" * 4000)),
    "a header of much space": lambda: _one(_header("(1,)" + " " * 9_000) + b"\n" + bytes(8)),
    "a length that lies": lambda: _with_declared_size(100),
    "objects": lambda: _one(_header("(1,)", "'|O'") + bytes(8)),
    "fields": lambda: _one(_header("(1,)", "[('a', '<f8')]") + bytes(8)),
    "wide text": lambda: _one(_header("()", "'<U500000000'")),
    "no header": lambda: _one(b"\x93NUMPY\x09\x09"),
    "lzma": lambda: _one(_header("(1,)") + bytes(8), zipfile.ZIP_LZMA),
    "a directory of a million members": lambda: _zip_of_many(1_000_000),
    "100,000 members": lambda: _zip({f"{n}.0.npy": b"" for n in range(100_000)}),
    "lies about its size": lambda: _with_declared_size(100),
    "lies about its size, hugely": lambda: _with_declared_size(2**32 - 2),
    "cut": lambda: _one(_header("(1,)") + bytes(8))[:-30],
    "no zip": lambda: b"\0" * 100,
}


def _zip_of_many(count: int) -> bytes:
    """Nothing but a directory, of entries of no name."""
    directory = (b"PK\1\2" + bytes(42)) * count
    size, places = len(directory).to_bytes(4, "little"), min(count, 65_535).to_bytes(2, "little")
    return directory + b"PK\5\6" + bytes(4) + places * 2 + size + bytes(4) + bytes(2)


_SLOW = {"100,000 members", "bomb"}  # more than a second each


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    x = pt.dvector("x")
    save(([x], [x.sum()]), tmp_path / "graph.pkl")
    return tmp_path / "graph.pkl"


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize(
    "name", [*(name for name in HOSTILE if name not in _SLOW), *deep(*sorted(_SLOW))]
)
def test_are_a_note_and_cost_little(name: str, graph: Path) -> None:
    values_path(graph).write_bytes(HOSTILE[name]())
    tracemalloc.start()
    loaded = load(graph)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert loaded.recorded == ()
    assert "recorded values cannot be used" in loaded.notes[0]
    assert peak < MOST


def test_text_is_no_value(graph: Path) -> None:
    np.savez(values_path(graph), **{"0.0": np.array(["one"])})
    assert "value 0.0 is text" in load(graph).notes[0]


def test_special_files_are_not_waited_for(graph: Path) -> None:
    os.mkfifo(values_path(graph))
    assert "not a regular file" in load(graph).notes[0]
    values_path(graph).unlink()
    values_path(graph).symlink_to("/dev/zero")
    assert "not a regular file" in load(graph).notes[0]


def test_are_not_read_unless_asked_for(graph: Path) -> None:
    np.savez(values_path(graph), **{"0.0": np.ones(2)})
    assert load(graph).recorded
    assert load(graph, recorded=False).recorded == ()
    values_path(graph).write_bytes(b"broken")
    assert load(graph, recorded=False).notes == ()
