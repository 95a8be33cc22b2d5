"""Report how many broken passes the tests notice: ``make mutants``, or with ``MUTANTS=20``.

Each pass is broken in several ways, one at a time, in a copy of the project. A mutant is killed by
the quick tier if a test of `make test` fails, and by the deep tier if one of `make test-deep` does.
Of both tiers, the tests that execute the mutated lines are run, the fastest first; of the deep
tier, as many as take ``--longest`` seconds, and no model of the zoo by Numba. Some mutants cannot
be killed: they compute the same.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from mutants import Mutant, mutants
from rich.console import Console
from rich.progress import track
from rich.table import Table
from touching import tests_by_line

_ROOT = Path(__file__).parents[2]
_PACKAGE = Path("scanopt_cli")
_PASSES = _PACKAGE / "passes"
# Modules by which several passes decide, counted like a pass.
_SHARED = {"accesses": _PACKAGE / "analysis/accesses", "loop": _PACKAGE / "loop"}
_TESTS = ("tests/passes", "tests/analysis", "tests/pipeline", "tests/loop", "tests/zoo")
# What pytest is given besides, in each tier.
_TIERS = {
    "quick": (),
    "deep": ("-m", "(deep or hypothesis or tiered) and not (pymc or jax or samplers or numba_zoo)"),
}
# A mutant may not end, or use up all memory. It has this many seconds and this many times what its
# tests take, and this many bytes.
_SECONDS, _TIMES = 60.0, 4.0
_MEMORY = 4 << 30


def main() -> int:
    """Break every pass, or those that are named, and print what the tests noticed."""
    parser = argparse.ArgumentParser(description=__doc__, prog="mutation")
    parser.add_argument("names", nargs="*", help="passes, as their modules are called; all if none")
    parser.add_argument("--count", type=int, default=10, help="how many mutants of each pass")
    parser.add_argument("--quick", action="store_true", help="leave out the deep tier")
    parser.add_argument(
        "--longest",
        type=float,
        default=300.0,
        help="seconds of tests of the deep tier for a mutant",
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument(
        "--work",
        type=Path,
        help="keep which tests execute which lines in this directory, and read it if it is there",
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    options = parser.parse_args()
    console, errors = Console(), Console(stderr=True)
    os.chdir(_ROOT)
    work = [
        (name, mutant)
        for name, files in _modules().items()
        if not options.names or name in options.names
        for mutant in mutants(files, options.count, options.seed)
    ]
    tiers = ["quick"] if options.quick else list(_TIERS)
    killed: dict[str, Counter[str]] = {}
    alive: list[str] = []
    with tempfile.TemporaryDirectory(prefix="scanopt-mutants-") as directory:
        copies: queue.Queue[Copy] = queue.Queue()
        for job in range(options.jobs):
            copies.put(Copy.make(Path(directory) / str(job)))
        touching = {}
        for tier in tiers:
            coverage = (options.work or Path(directory)).resolve() / f"coverage-{tier}"
            if not coverage.exists():
                errors.print(f"finding which tests of the {tier} tier execute which lines")
                next(iter(copies.queue)).cover(tier, options.jobs, coverage)
            touching[tier] = tests_by_line(coverage)
        if "deep" in touching:
            touching["deep"] = {
                line: _first(tests, options.longest) for line, tests in touching["deep"].items()
            }

        def killer(mutant: Mutant) -> str:
            copy = copies.get()
            try:
                return copy.killer(mutant, touching)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(options.jobs) as pool:
            found = pool.map(killer, [mutant for _, mutant in work])
            try:
                for (name, mutant), tier in track(
                    zip(work, found, strict=True), "mutants", len(work), console=errors
                ):
                    killed.setdefault(name, Counter())[tier] += 1
                    if tier != "quick":
                        alive.append(f"{tier}: {mutant}")
                        errors.print(alive[-1], markup=False, highlight=False, soft_wrap=True)
            except KeyboardInterrupt:  # what was found until then is reported
                pool.shutdown(cancel_futures=True)
    console.print(_table(killed))
    for line in alive:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


type Touching = dict[tuple[str, int], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the project, in which one mutant at a time is tested."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> Copy:
        """Copy what the tests need."""
        root.mkdir()
        for part in (_PACKAGE, "tests", "sample_graphs", "docs", "pyproject.toml", "README.md"):
            (shutil.copytree if Path(part).is_dir() else shutil.copy)(part, root / part)
        return cls(root)

    def cover(self, tier: str, jobs: int, directory: Path) -> None:
        """Write into a new directory which tests of a tier execute each line, and how long."""
        directory.mkdir(parents=True)
        command = ("-n", str(jobs), "--dist", "loadfile", *_TIERS[tier], *_TESTS)
        done = self._run(command, tier, MUTATION_COVERAGE=str(directory))
        if done.returncode:
            shutil.rmtree(directory)
            sys.exit(f"the tests of the {tier} tier fail without mutants:\n{done.stdout.decode()}")

    def killer(self, mutant: Mutant, touching: dict[str, Touching]) -> str:
        """Return the tier that notices a mutant: ``quick``, ``deep``, or ``none``."""
        file = self.root / mutant.file
        original = file.read_text()
        file.write_text(mutant.source())
        selected = self.root / "selected.json"
        try:
            for tier, tests in touching.items():
                where = str(mutant.file.relative_to(_PACKAGE))
                names = {
                    name: seconds
                    for line in mutant.lines
                    for name, seconds in tests.get((where, line), {}).items()
                }
                if not names:
                    continue
                selected.write_text(json.dumps(list(names)))
                files = {name.partition("::")[0] for name in names}
                command = ("-x", *_TIERS[tier], *files)
                longest = _SECONDS + _TIMES * sum(names.values())
                try:
                    done = self._run(command, tier, longest, MUTATION_TESTS=str(selected))
                except subprocess.TimeoutExpired:
                    return tier
                if done.returncode > 2:
                    raise RuntimeError(f"{mutant}: pytest says\n{done.stdout.decode()}")
                if done.returncode:
                    return tier
            return "none"
        finally:
            file.write_text(original)

    def _run(
        self, arguments: tuple[str, ...], tier: str, longest: float | None = None, **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        path = os.pathsep.join([str(self.root), str(self.root / "tests/mutation")])
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "touching"]
        return subprocess.run(
            [*command, *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": path, "HYPOTHESIS_PROFILE": tier, **variables},
            capture_output=True,
            timeout=longest,
            preexec_fn=None if longest is None else _limit_memory,
        )


def _first(tests: dict[str, float], longest: float) -> dict[str, float]:
    """Return the first of ``tests`` that take ``longest`` seconds together, at least one."""
    ends = accumulate(tests.values())
    return {
        name: seconds
        for (name, seconds), end in zip(tests.items(), ends, strict=True)
        if end - seconds <= 0 or end <= longest
    }


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _modules() -> dict[str, list[Path]]:
    """Return the files of each pass."""
    rooms = (_PASSES, _PASSES / "of_scans", _PASSES / "of_traced_loops")
    found = (entry for room in rooms for entry in sorted(room.iterdir()) if entry not in rooms)
    entries = {entry.stem: entry for entry in found}
    return {
        name: sorted(entry.glob("*.py")) if entry.is_dir() else [entry]
        for name, entry in (_SHARED | entries).items()
        if not name.startswith("__")
    }


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
