"""Code for processors with shorter vectors than this one may have computes the same values."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from loop import test_steps_in_parts
from loop.codegen import test_small_arrays

_X86 = {"x86_64", "AMD64"}


@pytest.mark.tiered(every=9)
@pytest.mark.skipif(platform.machine() not in _X86, reason="the processors are of x86")
@pytest.mark.parametrize("processor", ["haswell", "nehalem"])
def test_in_vectors_of(processor: str, tmp_path: Path) -> None:
    """Of four numbers, and of two.

    LLVM once read the last of four entries that a loop copies from beyond the end, where vectors
    are of four.
    """
    flags = f'{os.environ["PYTENSOR_FLAGS"]},base_compiledir="{tmp_path}"'
    chosen = {"PYTENSOR_FLAGS": flags, "NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": ""}
    left_alone = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    affine = f"{test_steps_in_parts.__file__}::test_affine"
    names = [f"{affine}[{name}]" for name in ("a state of the step before", "sums beside")]
    names += [f"{test_small_arrays.__file__}::test_axes_of_some_vectors[{n}]" for n in (16, 31)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "", *names],  # of both tiers
        env={**left_alone, **chosen},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
