"""Files that do not load: each is a `LoadError` that says why."""

from __future__ import annotations

import contextlib
import gzip
import os
import pickle
import subprocess
import sys
from copy import copy
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
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.op import Scan, ScanInfo
from pytensor.tensor.blockwise import Blockwise

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


def loaded(tmp_path: Path, *outputs: Any) -> Any:
    path = tmp_path / "graph.pkl"
    path.write_bytes(cloudpickle.dumps(list(outputs)))
    return load(path)


def test_booleans_are_zero_or_one(tmp_path: Path) -> None:
    """PyTensor takes a boolean whose byte is 2 for True, and C code computes with the 2."""
    two = np.frombuffer(b"\2\1\0", dtype=bool).copy()
    with pytest.raises(LoadError, match="booleans that are neither 0 nor 1"):
        loaded(tmp_path, pt.constant(two) + 1)


def test_the_signature_of_a_batched_scan(tmp_path: Path) -> None:
    """Lengths are inferred from it; `vectorize_graph` gives every dimension a name of its own."""
    s, rows = pt.dvector("s"), pt.dmatrix("rows")
    doubled = pytensor.scan(lambda a: a * 2, sequences=[s], n_steps=3, return_updates=False)
    honest = vectorize_graph(doubled, {s: rows})
    assert digest(loaded(tmp_path, honest).fgraph)
    false_op = Blockwise(doubled.owner.op, signature="(),(m),()->(m)")
    false = false_op(np.int64(3), rows, np.int64(3))
    with pytest.raises(LoadError, match="does not have the signature of its Scan"):
        loaded(tmp_path, false.shape[-1])


def test_buffers_that_a_step_cannot_be_given(tmp_path: Path) -> None:
    """A mit_mot output that overwrites no row that is read has no place to be written to."""
    x, h = pt.dvector("x"), pt.dscalar("h")
    kinds = {"mit_mot_in_slices": ((0,),), "mit_mot_out_slices": ((1,),)}
    none = {"mit_sot_in_slices": (), "sit_sot_in_slices": ()}
    counts = {"n_seqs": 0, "n_nit_sot": 0, "n_untraced_sit_sot": 0, "n_non_seqs": 0}
    scan = Scan([h], [pt.sin(h)], ScanInfo(**kinds, **none, **counts, as_while=False))
    steps = pt.constant(np.int64(3))
    assert loaded(tmp_path, scan(steps, x)).outputs
    scan.mitmots_preallocated = (True,)
    with pytest.raises(LoadError, match="its buffers do not fit its info"):
        loaded(tmp_path, scan(steps, x))


def test_an_op_of_another_graph_than_its_class_builds(tmp_path: Path) -> None:
    """PyTensor rewrites ``log(softmax(x))`` by the property; the graph is what counts."""
    x = pt.dmatrix("x")
    honest = pt.special.softmax(x, axis=1)
    (kept,) = loaded(tmp_path, honest).outputs
    assert type(kept.owner.op) is type(honest.owner.op)
    false = copy(honest.owner.op)
    false.axis = (0,)
    graph = loaded(tmp_path, pt.log(false(x)))
    values = np.array([[1.0, 2.0, 5.0], [0.3, 0.1, 0.2]])
    function = pytensor.function(list(graph.inputs), list(graph.outputs), mode="FAST_COMPILE")
    wanted = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(function(values)[0], wanted)
    assert "Softmax" in str(graph.outputs[0].owner.inputs[0].owner.op)


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
