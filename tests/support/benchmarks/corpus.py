"""A directory of many graph files, of all kinds that there are, the same for the same seed.

Files are numbered in an order by chance, so that the first hundred are a sample of all. What each
of them is stands beside them, in ``corpus.json``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import walk
from support.benchmarks.drawn_kinds import DRAWN
from support.benchmarks.known_kinds import known

CONTENTS = "corpus.json"
CAPTURED = "captured"
_FULL = 2_000
"""A corpus of so many graphs has every known one; a smaller one as large a share of each kind."""
_CAPTURED = 200
_TESTS = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a corpus: what is in it."""

    file: str
    kind: str
    name: str
    digest: str
    nodes: int
    scans: int
    bytes: int


def build(
    directory: Path,
    sizes: Mapping[str, int],
    seed: int = 0,
    *,
    tell: Callable[[str], None] = lambda _text: None,
) -> list[Entry]:
    """Write so many graphs of each kind into a directory, and ``corpus.json``; return the latter.

    The kinds of `DRAWN` have as many as are wanted, and all others those that there are.
    """
    directory.mkdir(parents=True, exist_ok=True)
    places = list(range(sum(sizes.values())))
    Random(seed).shuffle(places)
    free = iter(places)
    found: list[Entry] = []
    for kind, size in sizes.items():
        tell(f"{kind}: {size}")
        for name, graph, file in _of_kind(kind, size, seed) if size else ():
            path = directory / f"{next(free):05}_{_slug(kind)}.scanopt"
            if file is None:
                so.save(graph, path)
            else:
                path.write_bytes(file)
            found.append(_entry(path, kind, name, graph))
    found.sort(key=lambda entry: entry.file)
    text = json.dumps({"seed": seed, "graphs": [asdict(entry) for entry in found]}, indent=1)
    (directory / CONTENTS).write_text(text, encoding="utf-8")
    return found


def sizes_of(count: int) -> dict[str, int]:
    """Return how many graphs of each kind a corpus of ``count`` has."""
    share = min(count / _FULL, 1)
    wanted = {kind: len(graphs) for kind, graphs in known().items()} | {CAPTURED: _CAPTURED}
    sizes, left = {}, count
    for kind, size in wanted.items():
        sizes[kind] = min(max(round(size * share), 1), left)
        left -= sizes[kind]
    drawn = {kind: round(left * part) for kind, (part, _) in DRAWN.items()}
    first = next(iter(drawn))
    drawn[first] += left - sum(drawn.values())
    return sizes | drawn


def read(directory: Path) -> list[Entry]:
    """Return what is in the files of a corpus."""
    text = (directory / CONTENTS).read_text(encoding="utf-8")
    return [Entry(**entry) for entry in json.loads(text)["graphs"]]


def table(entries: Sequence[Entry]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and rows of a table: how many graphs of each kind, and how large."""
    heads = ["graphs", "number", "nodes, median", "nine of ten below", "most", "loops, most", "kB"]
    kinds = dict.fromkeys(sorted(entry.kind for entry in entries))
    parts = {kind: [entry for entry in entries if entry.kind == kind] for kind in kinds}
    rows = [_row(kind, part) for kind, part in {**parts, "all": list(entries)}.items()]
    return heads, rows


def _row(kind: str, entries: Sequence[Entry]) -> list[str]:
    nodes = [entry.nodes for entry in entries]
    nine = quantiles(nodes, n=10, method="inclusive")[-1] if len(nodes) > 1 else nodes[0]
    numbers = [
        len(entries),
        median(nodes),
        nine,
        max(nodes),
        max(entry.scans for entry in entries),
        sum(entry.bytes for entry in entries) / 1_000,
    ]
    return [kind, *(f"{number:,.0f}" for number in numbers)]


def _of_kind(kind: str, size: int, seed: int) -> Iterator[tuple[str, Graph, bytes | None]]:
    """Yield graphs with their names, and the file of each that has one."""
    if kind == CAPTURED:
        yield from _captured(size, seed)
    elif kind in DRAWN:
        _, drawn = DRAWN[kind]
        # Kinds that draw by the same strategy begin elsewhere.
        start = 1_000_000 * seed + 10_000 * (1 + list(DRAWN).index(kind))
        for number, graph in enumerate(islice(_different(drawn(start)), size)):
            yield f"{kind} {number}", graph, None
    else:
        for name, make in _spread(list(known()[kind].items()), size):
            yield name, make(), None


def _different(graphs: Iterable[Graph]) -> Iterator[Graph]:
    """Yield each graph that computes something else than those before."""
    seen: set[str] = set()
    for graph in graphs:
        digest = so.digest(graph)
        if digest not in seen:
            seen.add(digest)
            yield graph


def _spread[T](items: Sequence[T], size: int) -> Iterable[T]:
    return [items[number * len(items) // size] for number in range(size)]


def _captured(size: int, seed: int) -> Iterator[tuple[str, Graph, bytes]]:
    """Yield what ``scanopt capture`` keeps of a program."""
    program = [sys.executable, "-m", "support.benchmarks.captured_kinds"]
    path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
    with TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [
                *(sys.executable, "-m", "scanopt_cli", "capture", "-o", str(folder), "--"),
                # Some functions have no Scan: of one step, a loop is none.
                *(*program, str(size + size // 5 + 5), str(seed)),
            ],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        kept = sorted(folder.glob("*.scanopt"))
        if len(kept) < size:
            raise RuntimeError(f"the program left {len(kept)} graphs, and {size} are wanted")
        for file in kept[:size]:
            yield file.stem, so.load(file), file.read_bytes()


def _entry(path: Path, kind: str, name: str, graph: Graph) -> Entry:
    ops = [type(node.op).__name__ for node in walk(graph.fgraph)]
    return Entry(
        file=path.name,
        kind=kind,
        name=name,
        digest=so.digest(graph),
        nodes=len(ops),
        scans=ops.count("Scan"),
        bytes=path.stat().st_size,
    )


def _slug(kind: str) -> str:
    return "_".join(kind.replace(",", "").split())
