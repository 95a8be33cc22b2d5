"""Shared variables in files: their contents, their checks, and what commands say of them."""

from __future__ import annotations

import json
import pickle
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.scalar.sharedvar import ScalarSharedVariable
from pytensor.tensor.random.utils import RandomStream

import scanopt_cli as so
from scanopt_cli.cli.app import run
from scanopt_cli.errors import LoadError, ScanoptError
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.serialization.auditing import audit
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.payload import encode
from scanopt_cli.serialization.saving import LostUpdateWarning, save
from support.graph_building import scan
from support.round_trips import assert_comes_back


def decaying(*shared: Any) -> Any:
    x = pt.dvector("x")
    out = scan(
        lambda v, s, *rates: s * sum(rates) + v,
        sequences=[x],
        outputs_info=[np.float64(0)],
        non_sequences=list(shared),
    )
    return [x], [out[-1]]


def compiled(graph: Any) -> Any:
    return pytensor.function(graph.inputs, graph.outputs, on_unused_input="ignore")


KINDS: dict[str, Any] = {
    "number": lambda: pytensor.shared(np.array(0.8), name="s"),
    "vector": lambda: pytensor.shared(np.arange(3.0), name="s", shape=(3,)),
    "integers": lambda: pytensor.shared(np.arange(3), name=None),
    "strided": lambda: pytensor.shared(np.arange(12.0).reshape(3, 4)[:, ::2].T, borrow=True),
    "generator": lambda: pytensor.shared(np.random.default_rng(3), name="\\rho"),
    "sparse": lambda: pytensor.shared(scipy.sparse.csr_matrix(np.eye(3)), name="s"),
    "scalar": lambda: ScalarSharedVariable(pytensor.scalar.float64, 0.5, strict=False, name="s"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back(kind: str, file: Path) -> None:
    shared = KINDS[kind]()
    x = pt.dvector("x")
    again = assert_comes_back(([x], [x * 2, pytensor.compile.ops.DeepCopyOp()(shared)]), file)
    (found,) = again.shared
    assert [v.name for v in again.inputs] == ["x"]
    assert (type(found), found.type, found.name) == (type(shared), shared.type, shared.name)
    assert again.outputs[1].owner.inputs == [found]
    here, there = shared.get_value(), found.get_value()
    if kind == "generator":
        assert here.normal() == there.normal()
    else:
        wanted, got = (v.toarray() if hasattr(v, "toarray") else v for v in (here, there))
        np.testing.assert_array_equal(got, wanted)
        assert got.dtype == wanted.dtype
    found.set_value(deepcopy(here))


def test_results_read_the_value_of_the_file_and_later_ones(file: Path) -> None:
    rate = pytensor.shared(np.array(0.8), name="rate")
    save(decaying(rate), file)
    rate.set_value(0.1)
    graph = so.optimize(load(file), passes="loop").graph
    function = compiled(graph)
    assert function([1.0, 2.0])[0] == pytest.approx(0.8 + 2)
    graph.shared[0].set_value(0.5)
    assert function([1.0, 2.0])[0] == pytest.approx(0.5 + 2)
    save(graph, file)
    assert compiled(load(file))([1.0, 2.0])[0] == pytest.approx(0.5 + 2)


def test_the_value_is_that_of_the_time_of_saving(file: Path) -> None:
    rate = pytensor.shared(np.array(0.8), name="rate")
    graph = so.optimize(decaying(rate)).graph
    rate.set_value(0.2)
    save(graph, file)
    assert load(file).values == {1: 0.2}


@pytest.mark.parametrize("form", ["pair", "outputs"])
def test_pickles_of_pytensor(form: str, file: Path) -> None:
    rate = pytensor.shared(np.array(0.8), name="rate")
    inputs, outputs = decaying(rate)
    file.write_bytes(pickle.dumps((inputs, outputs) if form == "pair" else outputs))
    graph = load(file)
    assert [v.name for v in graph.inputs] == ["x"]
    assert compiled(graph)([1.0, 2.0])[0] == pytest.approx(0.8 + 2)


def test_files_of_the_first_release(file: Path) -> None:
    """They have the same tables: which inputs were shared variables, and with which contents."""
    rate = pytensor.shared(np.array(0.8), name="rate")
    graph = as_graph(decaying(rate))
    tables = encode(graph, keep_traces=False)
    assert tables["schema"] == 1
    assert [name for _, name in tables["inputs"]] == ["x", "rate"]
    assert tables["values"] == {1: np.array(0.8)}
    file.write_bytes(pickle.dumps(tables))
    again = load(file)
    assert so.digest(again) == so.digest(graph)
    assert [v.name for v in again.shared] == ["rate"]


# forged contents


def forged(value: Any, position: Any = 1) -> dict[str, Any]:
    rate = pytensor.shared(np.array(0.8), name="rate")
    return encode(as_graph(decaying(rate)), keep_traces=False) | {"values": {position: value}}


FORGED: dict[str, Any] = {
    "text": lambda: forged("import os"),
    "texts": lambda: forged(["a" * 1000] * 10),
    "another shape": lambda: forged(np.zeros(3)),
    "another kind": lambda: forged(np.random.default_rng(1)),
    "objects": lambda: forged(np.array([None], dtype=object)),
    "nothing": lambda: forged(None),
    "a position that is none": lambda: forged(0.5, 7),
    "a name for a position": lambda: forged(0.5, "rate"),
    "a negative position": lambda: forged(0.5, -1),
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_contents_are_refused(what: str, file: Path) -> None:
    file.write_bytes(pickle.dumps(FORGED[what]()))
    with pytest.raises(LoadError):
        load(file)
    assert not audit(file).safe


def test_an_array_for_a_number_is_refused(file: Path) -> None:
    number = ScalarSharedVariable(pytensor.scalar.float64, 0.5, strict=False, name="s")
    number.container.storage[0] = np.zeros(3)
    with pytest.raises(ScanoptError, match="a shared variable is an array, though its type"):
        save(([], [pt.tensor_from_scalar(number) + 1]), file)
    file.write_bytes(pickle.dumps([pt.tensor_from_scalar(number) + 1]))
    with pytest.raises(LoadError, match="a shared variable is an array, though its type"):
        load(file)


def test_contents_that_no_file_holds_are_refused_at_once(file: Path) -> None:
    anything = SharedVariable(pytensor.link.c.type.generic, object(), strict=False, name="s")
    with pytest.raises(ScanoptError, match="is not written, since it would not load"):
        save(([], [pytensor.compile.ops.DeepCopyOp()(anything)]), file)
    assert list(file.parent.iterdir()) == []


# default updates


def test_a_default_update_that_a_file_cannot_hold_is_said(file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        draws = RandomStream(7).normal(size=(3,))
    graph = as_graph(([], [draws]))
    (rng,) = graph.shared
    rng.name = "rng"
    with pytest.warns(LostUpdateWarning, match="the default updates of rng are not in the file"):
        save(graph, file)
    assert load(file).notes == (
        "the default updates of rng are not in the file; list them as outputs to keep them",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostUpdateWarning)
        save(([], [pt.random.normal(0, 1, rng=pytensor.shared(np.random.default_rng(1)))]), file)


# the command line


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize(
    "words",
    [
        ["inspect"],
        ["hash"],
        ["optimize"],
        ["grad", "--no-check"],
        ["diff", "F"],
        ["verify", "F"],
        ["python"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_says_how_many(
    words: list[str], file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rates = [pytensor.shared(np.array(0.1), name=name) for name in ("fast", "slow")]
    save(decaying(*rates), file)
    command, *rest = [str(file) if word == "F" else word for word in words]
    assert run([command, str(file), *rest]) == 0
    assert f"note: {file}: 2 shared variables: slow, fast\n" in capfd.readouterr().err


def test_there_and_back_by_the_command_line(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rate = pytensor.shared(np.array(0.8), name="rate")
    save(decaying(rate), file)
    target = file.with_name("clean.pkl")
    words = ["optimize", str(file), "-p", "loop", "--verify", "-o", str(target)]
    assert run(words) == 0
    assert "identical" in (said := capfd.readouterr().out) or "agrees" in said
    graph = load(target)
    assert [v.name for v in graph.inputs] == ["x"]
    assert compiled(graph)([1.0, 2.0])[0] == pytest.approx(0.8 + 2)


def test_json_names_them(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save(decaying(pytensor.shared(np.array(0.8), name="rate"), pytensor.shared(1.0)), file)
    assert run(["inspect", str(file), "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["shared"] == [None, "rate"]
