"""A name of the package says which thing is meant."""

from __future__ import annotations

import subprocess
import sys


def test_a_function_of_the_package_is_no_subpackage() -> None:
    """Whichever is imported first; in a process of its own, where neither was."""
    code = (
        "import scanopt_cli as so, scanopt_cli.diff\n"
        "from scanopt_cli import diff\n"
        "from scanopt_cli.diff.comparing import diff as function\n"
        "assert so.diff is diff is function, so.diff\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
