"""A graph is given as an object or as the path of its file; for all else, an error says so."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytensor
import pytest

import scanopt_cli as so
from scanopt_cli.errors import LoadError, UnsafeFileError
from support.graph_building import graph_of, power

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "optimize": lambda graph: so.optimize(graph).after,
    "diff": lambda graph: so.diff(graph, graph).digest_before,
    "verify": lambda graph: so.verify(graph, graph, runs=1, modes="plain").verdict,
    "check": lambda graph: so.check(graph).findings,
    "grad": lambda graph: so.grad(graph).orders[-1].statistics,
    "inspect": so.inspect,
    "digest": so.digest,
    "to_python": lambda graph: so.to_python(graph).text.partition("\n")[2],
}
BY_NAME = pytest.mark.parametrize("name", FUNCTIONS)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "square.pkl"
    so.save(graph_of(power()[1][-1]), path)
    return path


@BY_NAME
def test_a_path_is_loaded(name: str, file: Path, evaluated_here: None) -> None:
    function = FUNCTIONS[name]
    expected = function(so.load(file))
    assert function(file) == expected
    assert function(str(file)) == expected


def test_what_is_made_of_a_path_is_called_like_it(file: Path, evaluated_here: None) -> None:
    result = so.optimize(file, verify=True)
    assert result.graph.source == str(file)
    assert result.verification is not None
    assert result.verification.ok


def test_save_takes_a_path(file: Path, tmp_path: Path) -> None:
    so.save(file, tmp_path / "copy.pkl.gz")
    assert so.digest(tmp_path / "copy.pkl.gz") == so.digest(file)


def test_inputs_of_a_file_are_chosen_by_name(file: Path) -> None:
    assert so.grad(file, wrt="x").wrt == ("x",)
    with pytest.raises(so.GradientError, match="is not an input of the graph; inputs: x"):
        so.grad(file, wrt=[power()[0]])


@BY_NAME
def test_a_missing_file_is_told_of_as_by_load(name: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pkl")
    with pytest.raises(LoadError) as loading:
        so.load(missing)
    with pytest.raises(LoadError) as using:
        FUNCTIONS[name](missing)
    assert str(using.value) == str(loading.value)
    assert missing in str(using.value)


@BY_NAME
def test_a_file_is_read_as_safely_as_by_load(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.pkl"
    path.write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "touched").encode() + b"'\ntR.")
    with pytest.raises(UnsafeFileError):
        FUNCTIONS[name](path)
    assert not (tmp_path / "touched").exists()


def test_a_path_in_a_file_is_not_followed(file: Path, tmp_path: Path) -> None:
    for held in (str(file), [str(file)], {"inputs": [], "outputs": [str(file)]}):
        path = tmp_path / "path.pkl"
        path.write_bytes(pickle.dumps(held))
        for trust in (False, True):
            with pytest.raises(LoadError):
                so.load(path, trust=trust)


@BY_NAME
@pytest.mark.parametrize("given", [1, None, b"square.pkl", [], power()[0]], ids=repr)
def test_anything_else_is_told_what_is_wanted(name: str, given: object) -> None:
    with pytest.raises(so.ScanoptError) as error:
        FUNCTIONS[name](given)
    text = str(error.value)
    assert f"expected a graph, got {type(given).__name__}; give what so.load returns" in text
    assert "\n" not in text


def test_a_compiled_function_is_no_graph() -> None:
    x, trace = power()
    with pytest.raises(so.ScanoptError, match=r"got Function; .*so\.load"):
        so.inspect(pytensor.function([x], trace))  # type: ignore[arg-type]
