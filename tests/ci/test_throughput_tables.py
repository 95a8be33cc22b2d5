"""The tables of `make throughput`, and how a command and its workers are watched."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.throughput import Cell, exponent, measure, read, rows_of_growth, rows_of_ways
from support.benchmarks.watched import Watched, watched
from support.benchmarks.ways_to_run import WAYS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

RUN = Watched(1, 1.0, 0.5, 2.0, 80.0, 200.0, ())
PARENT = """
import subprocess, sys
held = bytearray(20 << 20)
child = "import time; held = bytearray(150 << 20); end = time.process_time() + 0.5\\n"
child += "while time.process_time() < end: pass\\ntime.sleep(0.5)"
subprocess.run([sys.executable, "-c", child], check=True)
print("scanopt: error: a: no", "scanopt: 3 of 7 graphs failed", sep="\\n", file=sys.stderr)
sys.exit(2)
"""


def cell(graphs: int, seconds: float, command: str = "check", way: str = "2 workers") -> Cell:
    return Cell(command, way, graphs, replace(RUN, seconds=seconds))


@pytest.mark.parametrize(
    ("time", "wanted"),
    [
        pytest.param(lambda n: 40 + n, 1, id="start-and-proportion"),
        pytest.param(lambda n: 40 + n**1.5, 1.5, id="faster"),
    ],
)
def test_the_exponent_leaves_out_the_start(time: Callable[[int], float], wanted: float) -> None:
    cells = [cell(n, time(n)) for n in (250, 500, 1_000, 2_000)]
    assert exponent(cells, lambda run: run.seconds) == pytest.approx(wanted)


def test_no_exponent_is_told_of_too_little() -> None:
    hardly = [cell(n, n / 10_000) for n in (250, 500, 1_000)]
    assert exponent(hardly, lambda run: run.seconds) is None
    assert exponent([cell(1, 1.0), cell(2, 5.0)], lambda run: run.seconds) is None


def test_rows(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    failed = ("scanopt: error: a.pkl: no", "scanopt: 3 of 200 graphs failed")
    cells = [
        cell(200, 999.0),
        replace(cell(200, 10.0, way="1 worker"), run=replace(RUN, seconds=10.0, errors=failed)),
        Cell("hash", "2 workers", 200, replace(RUN, code=None)),
        *(cell(n, n / 20) for n in (50, 100, 200)),
    ]
    kept.write_text("".join(f"{json.dumps(asdict(each))}\n" for each in cells))
    assert list(rows_of_ways(read(kept))) == [
        ["check: 1 worker", "10", "20", "0.5", "2", "80", "200", "3"],
        ["check: 2 workers", "10", "20", "0.5", "2", "80", "200", "0"],
        ["hash: 2 workers", "stopped", *[""] * 6],
    ]
    assert next(iter(rows_of_growth(read(kept)))) == ["check: seconds", "2.5", "5", "10", "1.00"]


def test_a_command_and_what_it_starts_are_watched() -> None:
    run = watched([sys.executable, "-c", PARENT], environment={}, limit=60)
    assert run.code == 2
    assert 20 < run.own_megabytes < 100
    assert run.worker_megabytes > 150
    assert run.worker_seconds >= 0.4
    assert run.own_seconds < run.seconds
    assert Cell("check", "1 worker", 7, run).failures == 3


def test_a_command_is_stopped_after_its_time() -> None:
    run = watched([sys.executable, "-c", "input_ = 1\nwhile True: pass"], environment={}, limit=0.5)
    assert run.code is None
    assert not Cell("check", "1 worker", 7, run).is_done


def test_a_command_is_measured_in_the_ways_that_it_has(small_graphs: list[Path]) -> None:
    way = next(way for way in WAYS if way.name == "1 worker")
    assert way.suits("hash")
    assert not replace(way, option="--no-such-option").suits("hash")
    assert not replace(way, needs="no_such_package").suits("hash")
    found = measure("check", way, small_graphs, 120)
    assert found is not None
    assert (found.run.code, found.failures) == (0, 0)


@pytest.fixture
def small_graphs(tmp_path: Path) -> list[Path]:
    from pytensor.tensor import dvector

    import scanopt_cli as so

    directory = tmp_path / "graphs"
    directory.mkdir()
    x = dvector("x")
    for name in ("a", "b"):
        so.save(([x], [x * 2]), directory / f"{name}.scanopt")
    return sorted(directory.iterdir())
