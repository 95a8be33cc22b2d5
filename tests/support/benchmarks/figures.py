"""The tables that benchmarks make: printed, and with ``--figures DIR`` written for the pages.

A file ``DIR/NAME.md`` has a line that says when, on what machine and by which command, and below it
the table. A table is either what a test hands to the fixture ``show_table``, or made of the times
that pytest-benchmark has (`OF_RESULTS`): a row for each group, a column for each way.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from scanopt_cli.text import three_digits, with_article

FIGURES = "--figures"
_ROOT = Path(__file__).parents[3]
_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


@dataclass(frozen=True, slots=True)
class OfResults:
    """How the times of a file of benchmarks become a table.

    Attributes
    ----------
    name
        The table's.
    ways
        The parameters that may say which column a time belongs to.
    heads
        The columns, by the values of these; a value that is not listed is its own head.
    unit
        That of the times.
    are_compared
        Whether each column but the first is followed by how many times as fast it is.
    """

    name: str
    ways: tuple[str, ...] = ()
    heads: Mapping[str, str] | None = None
    unit: str = "ms"
    are_compared: bool = True


OF_RESULTS: Mapping[str, OfResults] = {
    "test_against_upstream.py": OfResults(
        "merged_inputs", ("merge",), {"_by_pytensor": "PyTensor", "_by_scanopt": "scanopt"}
    ),
    "test_batches.py": OfResults("batches", ("pipeline",), {"none": "PyTensor"}, "µs"),
    "test_beside_jax.py": OfResults("beside_jax", ("form",), {"pytensor": "PyTensor"}),
    "test_filters.py": OfResults("filters", ("form",), {"pytensor": "PyTensor"}),
    "test_gradients.py": OfResults(
        "gradients", ("pipeline",), {"none": "PyTensor", "grad": "scanopt", "loop": "as loops"}
    ),
    "test_growth.py": OfResults("growth", ("nodes", "graph"), are_compared=False),
    "test_loops.py": OfResults("loops", ("form",), {"scan": "Scan"}),
    "test_loops_to_ops.py": OfResults(
        "loops_to_ops", ("form",), {"pytensor": "PyTensor"}, unit="µs"
    ),
    "test_start.py": OfResults("start", are_compared=False),
}
"""By the files of benchmarks."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One benchmark, as `of_results` needs it."""

    group: str
    parameters: Mapping[str, Any]
    seconds: float


def of_results(results: Iterable[Timed], spec: OfResults) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table that times make."""
    found: dict[str, dict[str, float]] = {}
    columns: dict[str, None] = {}
    for timed in results:
        ways = [timed.parameters[one] for one in spec.ways if one in timed.parameters]
        way = str(getattr(ways[0], "__name__", ways[0])) if ways else spec.unit
        row = timed.group
        if not spec.ways:
            row = " ".join(map(str, next(iter(timed.parameters.values()), [row])))
        columns[way] = None
        found.setdefault(row, {})[way] = timed.seconds
    heads, rows = [spec.unit if spec.ways else ""], []
    for place, way in enumerate(columns):
        heads.append((spec.heads or {}).get(way, way))
        heads += [""] if spec.are_compared and place else []
    first = next(iter(columns), "")
    shared = _shared_beginning(list(found))
    for label, seconds in found.items():
        cells = [label.removeprefix(shared)]
        for place, way in enumerate(columns):
            cells.append(_number(seconds.get(way), _UNITS[spec.unit]))
            if spec.are_compared and place:
                both = way in seconds and first in seconds
                cells.append(f"{three_digits(seconds[first] / seconds[way])}x" if both else "")
        rows.append(cells)
    return heads, rows


def _shared_beginning(labels: Sequence[str]) -> str:
    """Return what all labels have before a colon, if it is the same."""
    begins = {f"{label.partition(': ')[0]}: " for label in labels if ": " in label}
    (begin,) = begins if len(begins) == 1 else ("",)
    return begin if all(label.startswith(begin) for label in labels) else ""


def _number(seconds: float | None, unit: float) -> str:
    return "" if seconds is None else three_digits(seconds / unit)


def show(
    config: pytest.Config, name: str, heads: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table, whose first column has no numbers, and write it if that is asked for."""
    table = Table()
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)
    directory = config.getoption(FIGURES, default=None)
    if directory is not None:
        write(Path(directory), name, heads, rows, command_of(config))


def write(
    directory: Path, name: str, heads: Sequence[str], rows: Sequence[Sequence[str]], command: str
) -> Path:
    """Write a table as Markdown, below a line that says where it is from; return the file."""
    file = directory / f"{name}.md"
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"{origin(command)}", "", *markdown(heads, rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    first, *others = (
        f"| {' | '.join(cell.replace('|', r'\|') for cell in row)} |" for row in (heads, *rows)
    )
    yield from (first, f"|---|{'---:|' * (len(heads) - 1)}", *others)


def origin(command: str) -> str:
    """Return the line above a table: when, on what machine, and by which command."""
    return f"Measured on {datetime.now(UTC):%Y-%m-%d}, {machine()}, by `{command}`."


@cache
def machine() -> str:
    """Return what a time depends on: the processor, its cores, and the versions that compile."""
    from cpuinfo import get_cpu_info
    from llvmlite.binding import llvm_version_info

    brand = get_cpu_info().get("brand_raw") or platform.machine()
    parts = [f"{os.cpu_count()} cores of {with_article(brand)}", platform.system()]
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        parts.append("one BLAS thread")
    parts.append(f"Python {platform.python_version()}")
    for name, package in {"PyTensor": "pytensor", "Numba": "numba", "JAX": "jax"}.items():
        if find_spec(package) is not None:
            parts.append(f"{name} {version(package)}")
    return ", ".join([*parts, f"LLVM {'.'.join(map(str, llvm_version_info))}"])


def command_of(config: pytest.Config) -> str:
    """Return the command that runs these tests again, without paths of this machine."""
    arguments: list[str] = []
    given = iter(str(one) for one in config.invocation_params.args)
    for one in given:
        if one == FIGURES:
            next(given, None)
        elif not one.startswith(f"{FIGURES}="):
            arguments.append(one.removeprefix(f"{_ROOT}{os.sep}"))
    return f"pytest {shlex.join(arguments)}".replace("'", '"')
