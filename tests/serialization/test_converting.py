"""A pickle's graph as data: what is loaded of it is what is loaded of the pickle."""

from __future__ import annotations

import gzip
import pickle
import warnings
from hashlib import sha256
from pathlib import Path

import pytensor
import pytensor.tensor as pt
import pytest

from scanopt_cli.equivalence.hashing import hash_graph
from scanopt_cli.errors import LoadError, NotDataError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.converting import as_data
from scanopt_cli.serialization.files import Blob, read_blob
from scanopt_cli.serialization.loading import load_blob
from scanopt_cli.serialization.saving import save
from support.foreign_ops import Opaque
from support.graph_building import graph_of, power
from support.sample_building import samples


def converted(file: Blob) -> Blob:
    return as_data(file, trust=False, allow_packages=())


def alike(data: bytes, name: str = "model.pkl") -> tuple[Graph, Graph]:
    """Return the graph of a pickle, and that of the data that is made of it."""
    file = Blob(name, data)
    sent = converted(file)
    assert sent.is_data
    assert sent.data != data
    assert (sent.name, sent.size) == (name, len(data))
    assert sent.facts == file.facts
    assert sent.facts.sha256 == sha256(data).hexdigest()
    return load_blob(file), load_blob(sent)


def known_of(graph: Graph) -> object:
    names = [variable.name for variable in graph.fgraph.variables]
    return (
        *(graph.source, graph.notes, graph.versions, graph.output_names, sorted(map(str, names))),
        *(len(graph.recorded), [str(each.type) for each in graph.inputs], hash_graph(graph)),
    )


@pytest.mark.parametrize("name", sorted(samples()))
def test_samples(name: str, tmp_path: Path) -> None:
    save(samples()[name], tmp_path / "model.pkl", keep_traces=True)
    before, after = alike((tmp_path / "model.pkl").read_bytes())
    assert known_of(after) == known_of(before)


def test_a_plain_pickle_says_of_no_version() -> None:
    x = pt.dvector("x")
    outputs = {"total": x.sum(), "double": x * 2}
    before, after = alike(pickle.dumps(outputs))
    assert known_of(after) == known_of(before)
    assert after.versions == {}


def test_the_version_that_wrote_it_is_kept(tmp_path: Path) -> None:
    _, xs = power()
    save(graph_of(xs[-1]), tmp_path / "a.pkl")
    data = (tmp_path / "a.pkl").read_bytes()
    old = data.replace(pytensor.__version__.encode(), b"9" * len(pytensor.__version__))
    told = []
    for file in (Blob("a.pkl", old), converted(Blob("a.pkl", old))):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            load_blob(file)
        told.append([str(warning.message) for warning in caught])
    assert told[0] == told[1]
    assert "written with PyTensor 9" in told[0][0]


def test_data_is_left_as_it_is(tmp_path: Path) -> None:
    _, xs = power()
    for name in ("a.scanopt", "a.scanopt.gz"):
        save(graph_of(xs[-1]), tmp_path / name)
        file = read_blob(tmp_path / name)
        assert converted(file) is file


def test_a_gzipped_pickle_is_no_data_yet(tmp_path: Path) -> None:
    _, xs = power()
    save(graph_of(xs[-1]), tmp_path / "a.pkl")
    packed = gzip.compress((tmp_path / "a.pkl").read_bytes())
    assert not Blob("a.pkl.gz", packed).is_data
    alike(packed, "a.pkl.gz")


def test_recorded_values_beside_it_go_along(tmp_path: Path) -> None:
    x = pt.dscalar("x")
    file = Blob("a.pkl", pickle.dumps(([x], [x + 1])), b"values")
    assert converted(file).values == b"values"


def test_what_would_be_lost_is_no_data() -> None:
    x = pt.dvector("x")
    weight = pytensor.shared(3.0, "weight")
    with pytest.warns(DeprecationWarning, match="default_update"):
        weight.default_update = weight * 2  # type: ignore[assignment]
    updated = pickle.dumps(([x], [(x * weight).sum()]))
    with pytest.raises(NotDataError, match="default update"):
        as_data(Blob("a.pkl", updated), trust=True, allow_packages=())
    converted(Blob("a.pkl", updated))  # without trust, it is not loaded either


def test_an_op_of_another_package_is_no_data() -> None:
    x = pt.dvector("x")
    data = pickle.dumps(([x], [Opaque(1)(x)]))
    with pytest.raises(NotDataError):
        as_data(Blob("a.pkl", data), trust=True, allow_packages=())


def test_what_is_no_graph_is_refused_as_it_is_when_it_is_loaded() -> None:
    for data in (b"junk", pickle.dumps(3), b""):
        file = Blob("a.pkl", data)
        with pytest.raises(LoadError) as loading:
            load_blob(file)
        with pytest.raises(LoadError) as converting:
            converted(file)
        assert str(converting.value) == str(loading.value)
