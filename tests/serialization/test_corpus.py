"""Files of each version of the format, which every later scanopt reads.

A corpus is written once (`corpus/write_corpus.py`) and never again. If a test fails here, a file
that somebody has kept no longer loads.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import jsonschema
import numpy as np
import pytensor
import pytest
from numpy.testing import assert_allclose

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.serialization.auditing import audit
from scanopt_cli.serialization.data.names import CLASSES
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save

HERE = Path(__file__).parent
FILES = sorted((HERE / "corpus").glob("version_*/*.scanopt"))
SCHEMA = json.loads((HERE.parents[1] / "docs/reference/format.schema.json").read_text())

pytestmark = pytest.mark.filterwarnings(
    "ignore::scanopt_cli.serialization.loading.VersionWarning", "ignore::FutureWarning"
)


def test_there_are_files() -> None:
    assert len(FILES) >= 35


@pytest.mark.parametrize("kept", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_is_read(kept: Path, tmp_path: Path) -> None:
    graph = load(kept)
    assert audit(kept).safe
    again = tmp_path / "graph.scanopt"
    save(graph, again)
    assert digest(load(again), names=True) == digest(graph, names=True)


@pytest.mark.parametrize("kept", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_fits_the_schema(kept: Path) -> None:
    with zipfile.ZipFile(kept) as archive:
        table = json.loads(archive.read("graph.json"))
    jsonschema.validate(table, SCHEMA)


@pytest.mark.parametrize(
    "kept", [path for path in FILES if path.with_suffix(".outputs.npz").exists()], ids=str
)
def test_computes_what_it_did(kept: Path) -> None:
    graph = load(kept)
    (call,) = graph.recorded
    function = pytensor.function(graph.inputs, graph.outputs, mode="FAST_COMPILE")
    with np.load(kept.with_suffix(".outputs.npz")) as expected:
        found = function(*call)
        assert len(found) == len(expected.files)
        for value, name in zip(found, expected.files, strict=True):
            assert_allclose(value, expected[name], rtol=1e-12)


@pytest.mark.parametrize("names", [*(HERE / "corpus").glob("version_*/names.txt")], ids=str)
def test_names_of_classes_stay(names: Path) -> None:
    assert set(names.read_text().split()) <= CLASSES.keys()
