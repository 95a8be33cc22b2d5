"""Programs that are run in a process of their own."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import scanopt_cli


def run(program: str, *arguments: str, cache: str, keep: str = "") -> Any:
    """Return what a program prints as JSON; what is compiled is kept in ``cache``.

    ``keep`` says whether scanopt keeps it too, as the variable SCANOPT_CACHE does.
    """
    _compile_modules()
    tests = Path(__file__).parents[2]
    flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={cache}".strip(",")
    path = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTENSOR_FLAGS": flags, "PYTHONPATH": path, "SCANOPT_CACHE": keep},
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


@cache
def _compile_modules() -> None:
    """Compile scanopt's modules, as ``pip install`` does."""
    compileall.compile_dir(Path(scanopt_cli.__file__).parent, quiet=1)
