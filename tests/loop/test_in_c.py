"""The values of loops again, with a C compiler, which the other tests do without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


# The machines of CI have g++; PyTensor, and so scanopt, works without a C compiler too.
@pytest.mark.deep
@pytest.mark.skipif(shutil.which("g++") is None, reason="PyTensor compiles with g++")
def test_values_and_memory_in_c() -> None:
    here = Path(__file__).parent
    files = [str(here / name) for name in ("test_values.py", "test_memory.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        [*command, "-m", "deep or not deep", "-k", "CVM"],
        env={**os.environ, "PYTENSOR_FLAGS": "cxx=g++"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()[-3000:]
