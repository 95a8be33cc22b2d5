"""What every test runs under: a PyTensor that is the same everywhere, and Hypothesis profiles."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

_COMMON = {
    "deadline": None,
    # Graphs are slow to draw on a busy machine, which says nothing about the test.
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("dev", max_examples=50, **_COMMON)
settings.register_profile("ci", max_examples=200, derandomize=True, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

_compiledir = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Set PyTensor up before anything imports it; subprocesses and workers inherit the setting.

    Without a C compiler an evaluation costs milliseconds, and is the same on every machine. A
    fresh directory for compiled code keeps one run's code from another.
    """
    if hasattr(config, "workerinput"):
        return
    config.stash[_compiledir] = directory = tempfile.mkdtemp(prefix="scanopt-tests-")
    given = os.environ.get("PYTENSOR_FLAGS", "")
    os.environ["PYTENSOR_FLAGS"] = f'cxx=,base_compiledir="{directory}",{given}'


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the compiled code."""
    directory = config.stash.get(_compiledir, None)
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
