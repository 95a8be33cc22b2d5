"""Shared variables with their contents, and recorded values on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type

import scanopt_cli as so
from scanopt_cli.ir.graph import from_io
from support.graph_building import graph_of, scan
from support.python_scripts import assert_rebuilt, built_by, runs_alone

X, S = pt.dvector("x"), pt.dscalar("s")


def _shared(script: so.PythonScript) -> dict[str, Any]:
    names = built_by(script)
    found = from_io(names["inputs"], names["outputs"]).shared
    return {str(variable.name): variable for variable in found}


def test_shared_variables_keep_their_contents() -> None:
    contents = {
        "number": np.array(-0.0),
        "single": np.array([0.1, np.nan], dtype="float32"),
        "long": np.arange(50.0).reshape(5, 10),
        "flag": np.array(True),
        "none": np.zeros((0, 3)),
    }
    variables = [pytensor.shared(value, name=name) for name, value in contents.items()]
    variables.append(pytensor.shared(np.ones((2, 1)), name="row", shape=(None, 1)))
    graph = from_io([X], [variable.sum() + X for variable in variables])
    assert_rebuilt(graph)
    rebuilt = _shared(so.to_python(graph))
    for variable in variables:
        own, new = variable.get_value(), rebuilt[variable.name].get_value()
        assert (own.dtype, own.shape, own.tobytes()) == (new.dtype, new.shape, new.tobytes())
        assert variable.type == rebuilt[variable.name].type


def test_the_inputs_are_those_of_a_function() -> None:
    weights = pytensor.shared(np.ones(3), name="weights")
    names = built_by(so.to_python(from_io([X], [X * weights])))
    compiled = pytensor.function(names["inputs"], names["outputs"])
    np.testing.assert_array_equal(compiled(np.arange(3.0))[0], np.arange(3.0))


def test_shared_variables_whose_order_counts_are_listed() -> None:
    first, second = (pytensor.shared(np.ones(3), name=name) for name in ("first", "second"))
    unread = pytensor.shared(np.ones(3), name="unread")
    for inputs in ([first, X, second], [second, first, X], [X, unread, first, second]):
        assert_rebuilt(from_io(inputs, [X * second + first]))


@pytest.mark.parametrize("kind", ["PCG64", "MT19937", "Philox", "SFC64", "PCG64DXSM"])
def test_generators_keep_their_states(kind: str) -> None:
    own = np.random.Generator(getattr(np.random, kind)(123))
    own.normal(size=7)
    shared = pytensor.shared(own, name="rng")
    _, draws = pt.random.normal(size=(3,), rng=shared, return_next_rng=True)
    graph = graph_of(draws + S)
    assert_rebuilt(graph)
    (new,) = _shared(so.to_python(graph)).values()
    wanted = shared.get_value().normal(size=5)
    np.testing.assert_array_equal(new.get_value().normal(size=5), wanted)


def _recorded() -> so.Graph:
    n = pt.lscalar("n")
    rng = random_generator_type("rng")
    rate = pytensor.shared(np.array(3.0), name="rate")
    trace = scan(lambda x, s: s * 0.5 + x, sequences=[X], outputs_info=[S], n_steps=n)
    _, draw = pt.random.normal(rng=rng, return_next_rng=True)
    graph = from_io([X, n, S, rng], [trace * rate, draw])
    calls = [
        (np.arange(4.0) + i, np.array(3), np.array(1.0), np.random.default_rng(i), np.array(2.0))
        for i in range(2)
    ]
    return replace(graph, recorded=tuple(calls))


def test_recorded_values_are_left_out_or_printed(tmp_path: Path) -> None:
    graph = _recorded()
    plain = so.to_python(graph)
    assert not plain.constants
    assert "__main__" not in plain.text
    script = so.to_python(graph, values=True)
    assert {"value_of_x", "value_of_n"} <= script.constants.keys()
    names = built_by(script)
    assert so.digest((names["inputs"], names["outputs"])) == so.digest(graph)
    printed = runs_alone(script, tmp_path, as_program=True).splitlines()
    rate = graph.shared[0]
    rate.set_value(np.array(2.0))
    function = pytensor.function(graph.inputs, graph.outputs)
    wanted: list[str] = []
    for call in graph.recorded:
        rng = np.random.default_rng(len(wanted) // 2)
        wanted += [str(value) for value in function(*call[:3], rng)]
    assert printed == wanted


def test_values_that_were_not_recorded() -> None:
    with pytest.raises(so.ScanoptError, match="has no recorded values"):
        so.to_python(from_io([X], [X + 1]), values=True)


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    script = so.to_python(from_io([X], [X * np.arange(50.0)]))
    script.save(tmp_path / "model.py")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.npz", "model.py"]
    with pytest.raises(so.ScanoptError, match="is the name of the constants"):
        script.save(tmp_path / "model.npz")
    with pytest.raises(so.ScanoptError, match="cannot be written"):
        script.save(tmp_path / "no" / "model.py")
    before = (tmp_path / "model.npz").read_bytes()
    (tmp_path / "other.py").mkdir()
    with pytest.raises(so.ScanoptError):
        script.save(tmp_path / "other.py")
    assert (tmp_path / "model.npz").read_bytes() == before


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_another_float(dtype: str) -> None:
    with pytensor.config.change_flags(floatX=dtype):
        x = pt.vector("x")
        assert f'pytensor.config.floatX = "{dtype}"' in assert_rebuilt(
            from_io([x], [x * 0.1 + 1.5])
        )
