"""What Numba compiles of a loop is compiled once, whatever the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# A loop on arrays, with a product, rows of a constant, a trace and a loop inside.
_PROGRAM = """
import numpy as np
import pytensor
import pytensor.tensor as pt
from scanopt_cli import loop

start, rows, w = pt.dvector("start"), pt.dmatrix("rows"), pt.dmatrix("w")

def step(h, row, w):
    last, _ = loop.scan(lambda z, i, w: (pt.cos(z) + i,) * 2, h, pt.arange(2.0), w)
    new = pt.tanh(pt.dot(w, last) + row * 0.5)
    return new, new

last, trace = loop.scan(step, start, rows, w)
function = pytensor.function([start, rows, w], [last, trace], mode="NUMBA")
function(np.ones(3), np.ones((4, 3)), np.eye(3))
"""
# As the gradient of a loop over data has them.
_BACKWARDS = """
import numpy as np
import pytensor
import pytensor.tensor as pt
from scanopt_cli import loop

x = pt.dscalar("x")
data = pt.constant(np.arange(4.0)[::-1])
made = loop.scan(lambda h, d, x: (h * x + d,) * 2, x, data, x)
function = pytensor.function([x], made, mode="NUMBA")
assert function(2.0)[0] == 66.0
"""


def compiled_into(directory: Path, program: str) -> set[str]:
    """Run the program, and return which files the cache has."""
    flags = f'{os.environ["PYTENSOR_FLAGS"]},base_compiledir="{directory}"'
    environment = {**os.environ, "PYTENSOR_FLAGS": flags}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    return {path.name for path in directory.rglob("*.nb*")}


@pytest.mark.deep
@pytest.mark.parametrize("program", [_PROGRAM, _BACKWARDS], ids=["arrays", "backwards"])
def test_a_second_process_compiles_nothing(program: str, tmp_path: Path) -> None:
    first = compiled_into(tmp_path, program)
    assert any("numba_funcified_fgraph" in name for name in first)
    assert compiled_into(tmp_path, program) == first
