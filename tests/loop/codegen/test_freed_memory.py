"""Memory that a call frees stays for the next one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_PROGRAM = """
from resource import RUSAGE_SELF, getrusage
import numpy as np
from scanopt_cli.loop.codegen.freed_memory import keep_freed_memory

def faults():
    before = getrusage(RUSAGE_SELF).ru_minflt
    for _ in range(10):
        made = [np.ones(1 << 16) for _ in range(8)]
        del made
    return getrusage(RUSAGE_SELF).ru_minflt - before

faults()
before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


# The GNU C library's thresholds are what is tested; the machines of CI have it.
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other rules")
def test_the_system_gives_no_page_twice() -> None:
    """Eight arrays of 512 KiB are 1,024 pages, and more than the thresholds of the first round."""
    # Thresholds that are set by the environment stay as they are.
    environment = {
        key: value
        for key, value in os.environ.items()
        if key != "GLIBC_TUNABLES" and not key.startswith("MALLOC_")
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = map(int, done.stdout.split())
    assert before > 5_000
    assert after < 100
