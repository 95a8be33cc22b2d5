"""``save-mem{prealloc=false}`` in a PyTensor that writes no step in place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.deep
def test_values_are_kept_where_nothing_is_written_in_place() -> None:
    flags = f"{os.environ['PYTENSOR_FLAGS']},scan__allow_output_prealloc=False"
    properties = Path(__file__).with_name("test_pass_properties.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(properties)],
        env={**os.environ, "PYTENSOR_FLAGS": flags},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
