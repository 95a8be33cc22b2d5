"""Report how many broken passes the tests notice: ``make mutants``, or with ``MUTANTS=20``.

Each pass is broken in several ways, one at a time, in a copy of the project. A mutant is killed by
the quick tier if a test of `make test` fails, and by the deep tier if one of `make test-deep` does.
The tests of the pass run first, and those of all passes only if they notice nothing. Some mutants
cannot be killed: they compute the same.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mutants import Mutant, mutants
from rich.console import Console
from rich.progress import track
from rich.table import Table

_ROOT = Path(__file__).parents[2]
_PASSES = Path("scanopt_cli/passes")
_TESTS = Path("tests/passes")
# Modules by which several passes decide, counted like a pass.
_SHARED = {"accesses": [Path("scanopt_cli/analysis/accesses")]}
_QUICK: tuple[str, ...] = ()
_DEEP = ("-m", "(deep or hypothesis or tiered) and not pymc")
_LONGEST = 900


def main() -> int:
    """Break every pass, or those that are named, and print what the tests noticed."""
    parser = argparse.ArgumentParser(description=__doc__, prog="mutation")
    parser.add_argument("names", nargs="*", help="passes, as their modules are called; all if none")
    parser.add_argument("--count", type=int, default=10, help="how many mutants of each pass")
    parser.add_argument("--quick", action="store_true", help="leave out the deep tier")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    options = parser.parse_args()
    console = Console()
    killed: dict[str, Counter[str]] = {}
    alive: list[str] = []
    with tempfile.TemporaryDirectory(prefix="scanopt-mutants-") as directory:
        copy = Path(directory)
        for part in ("scanopt_cli", "tests", "sample_graphs", "pyproject.toml", "README.md"):
            source = _ROOT / part
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / part)
        os.chdir(copy)
        chosen = {
            name: mutants(files, options.count, options.seed)
            for name, files in _modules().items()
            if not options.names or name in options.names
        }
        work = [(name, mutant) for name, found in chosen.items() for mutant in found]
        for name, mutant in track(work, "mutants", console=Console(stderr=True)):
            killer = _killer(name, mutant, is_quick=options.quick)
            killed.setdefault(name, Counter())[killer] += 1
            if killer != "quick":
                alive.append(f"{killer}: {mutant}")
    console.print(_table(killed))
    for line in alive:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def _modules() -> dict[str, list[Path]]:
    """Return the files of each pass."""
    found = dict(_SHARED)
    for entry in sorted(_PASSES.iterdir()):
        if entry.suffix == ".py" and entry.stem != "__init__":
            found[entry.stem] = [entry]
        elif entry.is_dir() and entry.name != "__pycache__":
            found[entry.name] = [entry]
    return {
        name: [file for path in paths for file in ([path] if path.is_file() else path.glob("*.py"))]
        for name, paths in found.items()
    }


def _killer(name: str, mutant: Mutant, *, is_quick: bool) -> str:
    """Return the tier that notices a mutant: ``quick``, ``deep``, or ``none``."""
    original = mutant.file.read_text()
    mutant.file.write_text(mutant.source())
    own = sorted(map(str, _TESTS.glob(f"test_{name}*.py"))) or [str(_TESTS)]
    try:
        for tests in ([*own, "tests/analysis"], [str(_TESTS), "tests/pipeline"]):
            if _fails(tests, _QUICK, "quick"):
                return "quick"
        deep = [str(_TESTS), "tests/analysis", "tests/pipeline"]
        return "deep" if not is_quick and _fails(deep, _DEEP, "deep") else "none"
    finally:
        mutant.file.write_text(original)


def _fails(tests: Sequence[str], marks: Sequence[str], profile: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *marks, *tests]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "HYPOTHESIS_PROFILE": profile}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def _table(killed: dict[str, Counter[str]]) -> Table:
    table = Table("pass", "mutants", "killed by quick", "by deep only", "alive")
    total: Counter[str] = Counter()
    for name, counts in killed.items():
        total += counts
        table.add_row(name, *_cells(counts))
    table.add_section()
    table.add_row("all", *_cells(total))
    return table


def _cells(counts: Counter[str]) -> list[str]:
    return [str(n) for n in (counts.total(), counts["quick"], counts["deep"], counts["none"])]


if __name__ == "__main__":
    sys.exit(main())
