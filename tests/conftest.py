"""What every test runs under: a PyTensor that is the same everywhere, and Hypothesis profiles."""

from __future__ import annotations

import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

_COMMON = {
    "deadline": None,
    # Graphs are slow to draw on a busy machine, which says nothing about the test.
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("quick", max_examples=20, derandomize=True, **_COMMON)
settings.register_profile("deep", max_examples=200, derandomize=True, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def _set_up_pytensor() -> str:
    """Choose how PyTensor runs, before anything imports it; return what is to be removed.

    Without a C compiler an evaluation costs milliseconds, and is the same on every machine, and so
    does a compilation where the default mode is the virtual machine in Python, not Numba. A
    fresh directory for compiled code keeps one run's code from another. Processes that a test
    starts, and the workers of a parallel run, inherit the setting.
    """
    os.environ["SCANOPT_STRICT"] = "1"  # an error of a pass fails the test
    directory = tempfile.mkdtemp(prefix="scanopt-tests-")
    given = os.environ.get("PYTENSOR_FLAGS", "")
    os.environ["PYTENSOR_FLAGS"] = f'cxx=,linker=vm,base_compiledir="{directory}",{given}'
    return directory


_compiledir = None if "PYTEST_XDIST_WORKER" in os.environ else _set_up_pytensor()


def pytest_unconfigure() -> None:
    """Remove the compiled code."""
    if _compiledir is not None:
        shutil.rmtree(_compiledir, ignore_errors=True)
