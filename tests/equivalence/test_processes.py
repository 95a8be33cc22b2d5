"""Digests are the same in every process, under every flag of PyTensor, in memory and in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.scan.op import Scan

import scanopt_cli as so
from support import every_kind
from support.graph_building import scan_info
from support.tiers import deep


def _run(command: str, files: list[Path], *, seed: str, flags: str) -> str:
    """Run `every_kind` as a process of its own."""
    done = subprocess.run(
        [sys.executable, every_kind.__file__, command, *map(str, files)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONHASHSEED": seed,
            "PYTENSOR_FLAGS": f"{os.environ.get('PYTENSOR_FLAGS', '')},{flags}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The graph as one more process wrote it: by scanopt, and by cloudpickle."""
    folder = tmp_path_factory.mktemp("every_kind")
    paths = [folder / "saved.pkl", folder / "cloudpickled.pkl"]
    _run("write", paths, seed="7", flags="optimizer=fast_run,traceback__limit=20")
    return paths


@pytest.fixture(scope="module")
def expected() -> list[str]:
    return every_kind.digests(every_kind.build())


def test_each_notion_has_a_digest_of_its_own(expected: list[str]) -> None:
    assert len(set(expected)) == len(expected)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("seed", "flags"),
    [
        ("0", "floatX=float32,optimizer=None,linker=py,scan__allow_gc=True,warn_float64=ignore"),
        *deep(
            (
                "1",
                "mode=FAST_COMPILE,openmp=True,traceback__limit=0,scan__allow_output_prealloc=False",
            ),
            (
                "4711",
                "mode=NUMBA,optimizer_excluding=fusion,exception_verbosity=high,allow_gc=False",
            ),
        ),
    ],
)
def test_same_in_every_process(
    files: list[Path], expected: list[str], seed: str, flags: str
) -> None:
    found = json.loads(_run("read", files, seed=seed, flags=flags))
    assert found == {"built": expected, "saved": expected, "cloudpickled": expected}


@pytest.mark.deep
def test_flag_that_changes_what_is_built_does_not_change_what_was(
    files: list[Path], expected: list[str]
) -> None:
    """This cast policy gives integers that stand in the source another dtype."""
    found = json.loads(_run("read", files, seed="0", flags="cast_policy=numpy+floatX"))
    assert found["saved"] == found["cloudpickled"] == expected
    assert found["built"] != expected


def test_digest_from_before() -> None:
    """A change of the canonical form is one of `keys._VERSION` too, and then of this digest.

    The loop is made by its constructor: how `pytensor.scan` writes one depends on its version.
    """
    assert so.digest(_loop()) == "22e7dfd2e11edd42066fa661523de7bb"


def _loop() -> tuple[list[Variable], list[Variable]]:
    x, w = pt.dscalar(), pt.dscalar()
    info = scan_info(sit_sot_in_slices=((-1,),), n_non_seqs=1)
    op = Scan([x, w], [pt.tanh(x * w + np.float64(0.5))], info, strict=True)
    n, states, weight = pt.lscalar("n"), pt.dvector("states"), pt.dscalar("weight")
    return [n, states, weight], [op(n, states, weight)]
