"""How the time and memory of commands grow with a graph: ``make growth``.

Graphs grow in one way at a time: in nodes, in Scans, in slots of one Scan, and in how deep loops
are nested. Each command is run on each graph, in a process of its own, which is stopped after
``--limit`` seconds. Counted are the processor time (that of processes which it starts, too) and the
most memory. The exponent is that of the last step: time grows as ``n**exponent``. It leaves out
what the command takes on the smallest graph.

Runs are kept in a file, a line each, and tables are made of all that are there: so ways and
commands can be measured one after the other, by ``--way``, ``--graph`` and ``--command``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("PYTENSOR_FLAGS", "cxx=,linker=vm,traceback__limit=0")
os.environ.setdefault("SCANOPT_CACHE", "off")

import scanopt_cli as so
from scanopt_cli.cli import app
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.older_objects import collect_rarely
from scanopt_cli.text import three_digits
from support.benchmarks import growing_graphs as graphs
from support.benchmarks.figures import write
from support.benchmarks.one_run import Run, run
from support.benchmarks.sized_graphs import differentiated_graph, sized_graph

type Maker = Callable[[int], Graph]

_SMALLEST = 1
_LIMIT = 120.0
_LEAST = 0.5
"""Seconds; below, an exponent says nothing."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way in which graphs grow: its sizes, and the graphs by what they are called."""

    name: str
    sizes: tuple[int, ...]
    makers: dict[str, Maker]


def _of(share: float, maker: Maker) -> Maker:
    return lambda n: maker(max(int(n * share), 1))


WAYS = (
    Way(
        "nodes",
        (1_000, 10_000, 100_000),
        {
            "a chain before a loop": _of(0.5, graphs.chain_before),
            "operations side by side": graphs.operations,
            "a chain in a step": _of(0.5, graphs.long_body),
            "many loops": _of(0.7, sized_graph),
            "many gradients of loops": differentiated_graph,
        },
    ),
    Way(
        "Scans",
        (10, 100, 1_000),
        {
            "loops over one sequence": graphs.scans_of_one_input,
            "loops apart": graphs.scans_apart,
            "loops in a row": graphs.scans_in_a_row,
            "gradients apart": graphs.gradients_apart,
            "OpFromGraphs in a row": graphs.layers_in_a_row,
        },
    ),
    Way(
        "slots",
        (10, 100, 1_000),
        {
            "states": graphs.states,
            "traces": graphs.traces,
            "sequences": graphs.sequences,
            "non-sequences": graphs.constants,
            "taps": graphs.many_taps,
            "vectors joined to a sequence": graphs.joined_sequence,
            "readers of a trace": graphs.readers_of_a_trace,
        },
    ),
    Way(
        "levels",
        (2, 4, 8),
        {
            "loops in loops": graphs.nest,
            "two loops in each": graphs.nest_of_two,
            "gradients of loops in loops": graphs.gradient_of_a_nest,
            "OpFromGraphs, each twice": graphs.nest_of_layers,
        },
    ),
)

_BY_NODES = ("nodes", "levels")
"""Ways whose exponents are by the number of nodes, which is not quite the size."""

COMMANDS: dict[str, Sequence[str]] = {
    "load .pkl": (),
    "load": (),
    "inspect": ("inspect", "{a}"),
    "hash": ("hash", "{a}"),
    "check": ("check", "{a}"),
    "optimize": ("optimize", "{a}", "-o", "{b}", "--force"),
    "diff": ("diff", "{a}", "{b}"),
    "verify": ("verify", "{a}", "{b}"),
}
"""What is measured: two ways to load, and command lines of a graph and what `optimize` wrote."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One command on one graph, and what it took."""

    way: str
    graph: str
    size: int
    nodes: int
    command: str
    run: Run


def _make(maker: Maker, size: int, folder: Path) -> Callable[[], int]:
    def call() -> int:
        graph = maker(size)
        for suffix in ("pkl", "scanopt"):
            so.save(graph, folder / f"a.{suffix}")
        (folder / "nodes").write_text(str(sum(1 for _ in walk(graph.fgraph))))
        return 0

    return call


def _call(command: str, folder: Path) -> Callable[[], int]:
    a, b = folder / "a.scanopt", folder / "b.scanopt"
    if not COMMANDS[command]:
        path = folder / "a.pkl" if command.endswith(".pkl") else a
        return lambda: 0 if so.load(path).fgraph.outputs else 1
    words = [word.format(a=a, b=b) for word in COMMANDS[command]]
    return lambda: app.run(words)


def measure(way: Way, graph: str, size: int, wanted: str, limit: float) -> Iterator[Cell]:
    """Run the commands whose names hold a word on a graph, if it can be made in time."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        log, a, b = folder / "log", folder / "a.scanopt", folder / "b.scanopt"
        made = run(_make(way.makers[graph], size, folder), 4 * limit, log)
        if not is_done(made):
            print(f"{graph}, {size:,}: is not made: {made.told}", file=sys.stderr, flush=True)
            return
        nodes = int((folder / "nodes").read_text())
        for command in COMMANDS:
            is_before = command == "optimize" and wanted in ("diff", "verify")
            if wanted in command or is_before:
                done = run(_call(command, folder), limit, log)
                if not is_before:
                    yield Cell(way.name, graph, size, nodes, command, done)
            if command == "optimize" and not b.exists():
                b.write_bytes(a.read_bytes())  # the graph is compared with itself


def is_done(result: Run) -> bool:
    """Whether a command came to an end and did its work; 1 is a finding."""
    return result.code in (0, 1)


def exponent(cells: Sequence[Cell], *, by_nodes: bool) -> float | None:
    """Return the exponent of the last step, beyond what the smallest graph takes.

    It is None if there is none: fewer than three runs are done, or they take next to no time.
    """
    done = [cell for cell in cells if is_done(cell.run)]
    if len(done) < 3:
        return None
    base, *_, before, after = done
    factor = after.nodes / before.nodes if by_nodes else after.size / before.size
    small, large = (cell.run.seconds - base.run.seconds for cell in (before, after))
    if large < _LEAST:
        return None
    return log(large / max(small, _LEAST / 10)) / log(factor)


def rows(way: Way, cells: Sequence[Cell]) -> Iterator[list[str]]:
    """Yield the rows of a way: of each graph the seconds by size, the exponents and the memory."""
    for graph in way.makers:
        own = [cell for cell in cells if cell.graph == graph]
        for size in way.sizes:
            found = {cell.command: cell for cell in own if cell.size == size}
            if found:
                nodes = next(iter(found.values())).nodes
                times = (_seconds(found[c].run) if c in found else "" for c in COMMANDS)
                yield [f"{graph}: {size:,}", f"{nodes:,}", *times]
        of = {c: [cell for cell in own if cell.command == c] for c in COMMANDS}
        if own:
            found_exponents = (exponent(of[c], by_nodes=way.name in _BY_NODES) for c in COMMANDS)
            shown = ("" if one is None else f"{one:.2f}" for one in found_exponents)
            yield ["exponent", "", *shown]
            most = (max((cell.run.megabytes for cell in of[c]), default=0) for c in COMMANDS)
            yield ["most memory, MB", "", *(f"{one:,}" if one else "" for one in most)]


def _seconds(result: Run) -> str:
    if result.code is None:
        return "stopped"
    return three_digits(result.seconds) if is_done(result) else "no result"


def write_tables(directory: Path, cells: Sequence[Cell], limit: float) -> None:
    """Write the table of each way of which there are runs."""
    command = "make growth" if limit == _LIMIT else f"make growth LIMIT={limit:g}"
    for way in WAYS:
        found = list(rows(way, [cell for cell in cells if cell.way == way.name]))
        if found:
            heads = ("seconds", "nodes", *COMMANDS)
            write(directory, f"growth_{way.name.lower()}", heads, found, command)


def read(kept: Path) -> list[Cell]:
    """Return the runs that are kept, the last one of each cell, by size."""
    found: dict[tuple[str, str, int, str], Cell] = {}
    for text in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        entry = json.loads(text)
        cell = Cell(**{**entry, "run": Run(**entry["run"])})
        found[cell.way, cell.graph, cell.size, cell.command] = cell
    return sorted(found.values(), key=lambda cell: cell.size)


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("directory", type=Path, help="where the tables are written")
    parser.add_argument("--kept", type=Path, required=True, help="the file that keeps the runs")
    parser.add_argument("--limit", type=float, default=_LIMIT, help="seconds of each run")
    parser.add_argument("--most", type=float, default=1e9, help="the largest size")
    for name in ("way", "graph", "command"):
        parser.add_argument(f"--{name}", default="", help="only those whose names hold this")
    given = parser.parse_args()
    given.kept.parent.mkdir(parents=True, exist_ok=True)
    _warm_up()
    for way in (way for way in WAYS if given.way in way.name):
        for graph in (graph for graph in way.makers if given.graph in graph):
            for size in (size for size in (_SMALLEST, *way.sizes) if size <= given.most):
                for cell in measure(way, graph, size, given.command, given.limit):
                    with given.kept.open("a", encoding="utf-8") as file:
                        file.write(f"{json.dumps(asdict(cell))}\n")
                    print(
                        f"{graph}, {size:,}, {cell.nodes:,} nodes, {cell.command}: "
                        f"{cell.run.seconds:.2f} s, {cell.run.megabytes} MB, {cell.run.code} "
                        f"{cell.run.told}",
                        file=sys.stderr,
                        flush=True,
                    )
    write_tables(given.directory, read(given.kept), given.limit)


def _warm_up() -> None:
    """Import here what every run needs, and collect garbage as in a process of scanopt's own."""
    collect_rarely()
    with TemporaryDirectory() as name:
        folder = Path(name)
        _make(graphs.nest, _SMALLEST, folder)()
        devnull = os.open(os.devnull, os.O_RDWR)
        kept = [os.dup(1), os.dup(2)]
        for target in (1, 2):
            os.dup2(devnull, target)
        for command in COMMANDS:
            _call(command, folder)()
        for target, source in zip((1, 2), kept, strict=True):
            os.dup2(source, target)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
