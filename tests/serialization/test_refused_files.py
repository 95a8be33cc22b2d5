"""Files that do not load: each is a `LoadError` that says why."""

from __future__ import annotations

import contextlib
import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import LoadError
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.serialization import files
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.payload import encode


def test_a_number_that_is_an_array_is_refused(tmp_path: Path) -> None:
    """PyTensor makes a constant of any array, of the type of a number."""
    rows = np.array([], dtype="int64")
    bound = ps.int64.make_constant(rows)
    x = pt.dvector("x")
    node = x[3:].owner
    out = Apply(node.op, [x, bound], [x.type()]).outputs[0]
    for name, data in (
        ("plain", pickle.dumps(FunctionGraph([x], [out], clone=False))),
        ("own", pickle.dumps(encode(as_graph(([x], [out])), keep_traces=False))),
    ):
        path = tmp_path / f"{name}.pkl"
        path.write_bytes(data)
        with pytest.raises(LoadError, match="type is that of a number"):
            load(path)


_ZEROS = """
import pickle, sys, pytensor, pytensor.tensor as pt
zero, x = pt.constant(float(sys.argv[1])), pt.dscalar("x")
ys = pytensor.scan(lambda y: pt.arctan2(zero, -abs(y)), outputs_info=[x], n_steps=2,
                   return_updates=False)
pickle.dump([ys[-1]], open(sys.argv[2], "wb"))
"""


def test_zeros_of_other_signs_in_bodies_of_two_files(tmp_path: Path) -> None:
    """PyTensor keeps one node for both: each loads alone, and no file gets the other's zero."""
    files = {zero: tmp_path / f"{zero}.pkl" for zero in ("0.0", "-0.0")}
    for zero, path in files.items():
        subprocess.run([sys.executable, "-c", _ZEROS, zero, str(path)], check=True)
    first = load(files["-0.0"])
    with pytest.raises(LoadError, match=r"takes for another one: .* \(0.0, -0.0\)") as raised:
        load(files["0.0"])
    assert "alone" in str(raised.value.hint)
    assert digest(load(files["-0.0"]).fgraph) == digest(first.fgraph)


def test_gzip_bomb(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 1 << 20)
    file.write_bytes(gzip.compress(bytes(8 << 20)))
    with pytest.raises(LoadError, match="holds more than 1,048,576 bytes"):
        load(file)


def test_small_gzip_file_of_much_data(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_SMALL", 1 << 10)
    file.write_bytes(gzip.compress(bytes(1 << 20)))
    with pytest.raises(LoadError, match="unpacks to more than 100 times its size"):
        load(file)


def test_missing_directory_and_pipe(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such file"):
        load(tmp_path / "nothing.pkl")
    with pytest.raises(LoadError, match="is a directory"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LoadError, match="not a regular file"):
        load(tmp_path / "pipe")
    with pytest.raises(LoadError, match="cannot be read"):
        load(tmp_path / ("x" * 5000))


def test_unreadable_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"x")

    def denied(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(LoadError, match="cannot be read: Permission denied; check"):
        load(file)


def test_random_damage_never_escapes(file: Path) -> None:
    """A byte changed anywhere gives a graph or a LoadError, and the process lives."""
    good = cloudpickle.dumps([pytensor.shared(np.arange(3.0)) + pt.vector("x")])
    random = np.random.default_rng(0)
    for _ in range(400):
        damaged = bytearray(good)
        for place in random.integers(2, len(good), size=2):
            damaged[place] = random.integers(256)
        file.write_bytes(bytes(damaged))
        with contextlib.suppress(LoadError):
            load(file)
