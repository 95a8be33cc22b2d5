"""The corpus of `make throughput`: the same for the same seed, and of graphs that commands take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import scanopt_cli as so
from support.benchmarks import corpus
from support.benchmarks.drawn_kinds import DRAWN

ROOT = Path(__file__).parents[2]
SIZES = {
    "samples": 3,
    "zoo": 3,
    "zoo, first derivatives": 2,
    "zoo, second derivatives": 1,
    "batches of subjects": 2,
    "every kind of Op": 4,
    **dict.fromkeys(DRAWN, 2),
    "random loops, 2 to 8 in a graph": 1,
}
_LARGE = 200
"""So many nodes take seconds to check."""
BUILD = """
import json, sys
from pathlib import Path
from support.benchmarks import corpus
corpus.build(Path(sys.argv[1]), json.loads(sys.argv[2]))
"""


def told(directory: Path) -> list[corpus.Entry]:
    """What is in a corpus, but for the sizes of files.

    Equal constants are one object or two, as it suits PyTensor and what it has made before.
    """
    return [replace(entry, bytes=0) for entry in corpus.read(directory)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(tmp_path_factory.mktemp("corpus"))


def _built(directory: Path, **environment: str) -> Path:
    """Make a corpus in a process of its own.

    Hypothesis also draws constants that it finds in the modules that are loaded, and these differ
    from one run of tests to another.
    """
    path = os.pathsep.join(str(ROOT / name) for name in (".", "tests", "sample_graphs"))
    subprocess.run(
        [sys.executable, "-c", BUILD, str(directory), json.dumps(SIZES)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        check=True,
    )
    return directory


@pytest.mark.deep
def test_it_is_the_same_in_another_process(small: Path, tmp_path: Path) -> None:
    assert told(_built(tmp_path, PYTHONHASHSEED="7")) == told(small)


def test_each_file_is_a_graph_that_can_be_checked(small: Path) -> None:
    entries = corpus.read(small)
    assert [each.file for each in entries] == sorted(each.name for each in small.glob("*.scanopt"))
    assert {kind: sum(each.kind == kind for each in entries) for kind in SIZES} == SIZES
    for entry in entries:
        graph = so.load(small / entry.file)
        assert so.digest(graph) == entry.digest
        if entry.nodes < _LARGE:
            so.check(graph)


def test_another_seed_draws_others(small: Path, tmp_path: Path) -> None:
    kind = next(iter(DRAWN))
    first = {each.digest for each in corpus.read(small) if each.kind == kind}
    second = corpus.build(tmp_path, {kind: 20}, seed=1)
    assert len({each.digest for each in second} - first) > 15


def test_some_are_captured_from_a_program(tmp_path: Path) -> None:
    found = corpus.build(tmp_path, {corpus.CAPTURED: 2})
    assert [so.load(tmp_path / each.file).notes[0].split()[0] for each in found] == ["Captured"] * 2


def test_a_full_corpus_has_every_known_graph_and_a_small_one_a_share() -> None:
    full, small = corpus.sizes_of(2_000), corpus.sizes_of(200)
    assert (sum(full.values()), sum(small.values())) == (2_000, 200)
    assert (full["zoo"], small["zoo"]) == (33, 3)
    assert min(small.values()) > 0
