"""How fast commands work on many graphs, and how time and memory grow: ``make throughput``.

The graphs are a corpus (`support.benchmarks.corpus`), made when it is not there. Each command is
run on all of them in each way that it has, and by workers on an eighth, a quarter, a half and all.
Time is wall time; memory is the most that the kernel has noted of a process, so of its own process
apart from its workers. A graph that fails is counted.

Runs are kept in a file, a line each, and tables are made of all that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("PYTENSOR_FLAGS", "cxx=,linker=vm,traceback__limit=0")
os.environ.setdefault("SCANOPT_CACHE", "off")

from scanopt_cli.text import three_digits
from support.benchmarks import corpus
from support.benchmarks.figures import write
from support.benchmarks.watched import Watched, watched
from support.benchmarks.ways_to_run import WAYS, Way, has_kept

_GRAPHS = 2_000
_PARTS = (8, 4, 2, 1)
_GROWS = "2 workers"
"""The way in which growth is measured."""
_LIMIT = 3_600.0
_LEAST = 0.5
"""Seconds; below, an exponent says nothing."""
_FAILED = re.compile(r"(\d+) of \d+ graphs failed$")
_SHOWN = 5

TABLES = ("many_graphs", "throughput", "throughput_growth")
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "check": ("check", "graphs"),
    "optimize": ("optimize", "graphs", "-o", "results"),
    "hash": ("hash", "graphs"),
}
"""What is measured. `lock` and `status` do the work of `hash` and of `check`, on each graph."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One command on so many graphs in one way, and what it took."""

    command: str
    way: str
    graphs: int
    run: Watched

    @property
    def is_done(self) -> bool:
        """Whether the command came to an end, whatever it found."""
        return self.run.code is not None

    @property
    def failures(self) -> int:
        """Of how many graphs it says that they failed."""
        found = [match for line in self.run.errors if (match := _FAILED.search(line))]
        return sum(int(match[1]) for match in found)


def measure(command: str, way: Way, graphs: Sequence[Path], limit: float) -> Cell | None:
    """Run a command on a directory of graphs; None if the way is to read what it does not keep."""
    with TemporaryDirectory(dir=graphs[0].parents[1]) as name:  # on the same disk, for the links
        folder = Path(name)
        places = {each: folder / each for each in ("graphs", "results")}
        for each in places.values():
            each.mkdir()
        for path in graphs:
            os.link(path, places["graphs"] / path.name)

        def run() -> Watched:
            return watched(
                [
                    *(sys.executable, "-m", "scanopt_cli"),
                    *(str(places.get(word, word)) for word in COMMANDS[command]),
                    *setting.options,
                ],
                environment=setting.environment,
                limit=limit,
                others=setting.others,
            )

        with way.setting(folder) as setting:
            if way.is_repeated:
                run()
                if not has_kept(folder):
                    return None
            return Cell(command, way.name, len(graphs), run())


def exponent(cells: Sequence[Cell], of: Callable[[Watched], float]) -> float | None:
    """Return the exponent ``p`` for which ``a + b * n**p`` fits the last three, which are doubled.

    It is None if there is none: fewer than three runs are done, or the last is hardly slower.
    """
    done = [cell for cell in cells if cell.is_done]
    if len(done) < 3:
        return None
    first, second, third = done[-3:]
    small, large = of(second.run) - of(first.run), of(third.run) - of(second.run)
    if min(small, large) < _LEAST:
        return None
    return log(large / small) / log((third.graphs - second.graphs) / (second.graphs - first.graphs))


def rows_of_ways(cells: Sequence[Cell]) -> Iterator[list[str]]:
    """Yield a row for each command and way, of the most graphs."""
    most = max((cell.graphs for cell in cells), default=0)
    for cell in (cell for cell in cells if cell.graphs == most):
        run = cell.run
        if cell.is_done:
            yield [
                f"{cell.command}: {cell.way}",
                three_digits(run.seconds),
                three_digits(cell.graphs / run.seconds),
                three_digits(run.own_seconds),
                three_digits(run.worker_seconds),
                f"{run.own_megabytes:,.0f}",
                f"{run.worker_megabytes:,.0f}" if run.worker_megabytes else "",
                f"{cell.failures:,}",
            ]
        else:
            yield [f"{cell.command}: {cell.way}", "stopped", *[""] * 6]


def rows_of_growth(cells: Sequence[Cell]) -> Iterator[list[str]]:
    """Yield rows of how each command grows: time, and memory."""
    for command in COMMANDS:
        own = [cell for cell in cells if (cell.command, cell.way) == (command, _GROWS)]
        own.sort(key=lambda cell: cell.graphs)
        if len(own) < 2:
            continue
        wanted: dict[str, Callable[[Watched], float]] = {
            "seconds": lambda run: run.seconds,
            "processor time of all": lambda run: run.own_seconds + run.worker_seconds,
            "its own processor time": lambda run: run.own_seconds,
            "its own memory, MB": lambda run: run.own_megabytes,
            "the largest worker, MB": lambda run: run.worker_megabytes,
        }
        for what, of in wanted.items():
            found = exponent(own, of) if "MB" not in what else None
            shown = "" if found is None else f"{found:.2f}"
            yield [f"{command}: {what}", *(three_digits(of(cell.run)) for cell in own), shown]


def write_tables(directory: Path, graphs: Path, cells: Sequence[Cell], command: str) -> None:
    """Write the tables: of the graphs, of the ways, of growth."""
    of_graphs, of_ways, of_growth = TABLES
    write(directory, of_graphs, *corpus.table(corpus.read(graphs)), command)
    heads = ("", "seconds", "graphs/s", "own processor s", "workers' s", "MB", "worker, MB")
    write(directory, of_ways, (*heads, "failed"), list(rows_of_ways(cells)), command)
    sizes = sorted({cell.graphs for cell in cells if cell.way == _GROWS})
    growth = list(rows_of_growth(cells))
    if growth:
        heads = ("graphs", *(f"{size:,}" for size in sizes), "exponent")
        write(directory, of_growth, heads, growth, command)


def read(kept: Path) -> list[Cell]:
    """Return the runs that are kept, the last one of each cell, in the order of the tables."""
    found: dict[tuple[str, str, int], Cell] = {}
    for text in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        entry = json.loads(text)
        cell = Cell(**{**entry, "run": Watched(**entry["run"])})
        found[cell.command, cell.way, cell.graphs] = cell
    ways = [way.name for way in WAYS]
    order = list(COMMANDS)
    return sorted(
        found.values(),
        key=lambda cell: (order.index(cell.command), ways.index(cell.way), cell.graphs),
    )


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("directory", type=Path, help="where the tables are written")
    parser.add_argument("--kept", type=Path, required=True, help="the file that keeps the runs")
    parser.add_argument("--corpus", type=Path, required=True, help="where the graphs are, or go")
    parser.add_argument("--graphs", type=int, default=_GRAPHS, help="how many are made")
    parser.add_argument("--limit", type=float, default=_LIMIT, help="seconds of each run")
    for name in ("command", "way"):
        parser.add_argument(f"--{name}", default="", help="only those whose names hold this")
    given = parser.parse_args()
    graphs = given.corpus / f"{given.graphs}"
    if not (graphs / corpus.CONTENTS).exists():
        corpus.build(graphs, corpus.sizes_of(given.graphs), tell=_say)
    given.kept.parent.mkdir(parents=True, exist_ok=True)
    files = [graphs / entry.file for entry in corpus.read(graphs)]
    for part in _PARTS:
        for way in (way for way in WAYS if given.way in way.name):
            for command in (one for one in COMMANDS if given.command in one):
                if (part == 1 or way.name == _GROWS) and way.suits(command):
                    cell = measure(command, way, files[: len(files) // part], given.limit)
                    _keep(cell, given.kept)
    number = "" if given.graphs == _GRAPHS else f" GRAPHS={given.graphs}"
    write_tables(given.directory, graphs, read(given.kept), f"make throughput{number}")


def _keep(cell: Cell | None, kept: Path) -> None:
    if cell is None:
        return
    with kept.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(asdict(cell))}\n")
    run = cell.run
    _say(
        f"{cell.command}, {cell.way}, {cell.graphs:,} graphs: {run.seconds:.1f} s, "
        f"{run.own_seconds:.1f} + {run.worker_seconds:.1f} s of processor time, "
        f"{run.own_megabytes:.0f} and {run.worker_megabytes:.0f} MB, {cell.failures} failed, "
        f"exit code {run.code}"
    )
    told = [line for line in run.errors if "error: " in line]
    for line in told[:_SHOWN]:
        _say(f"  {line}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
