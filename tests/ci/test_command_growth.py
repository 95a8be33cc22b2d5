"""The tables of how commands grow: of the runs that are kept, whatever became of them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.command_growth import WAYS, Cell, exponent, read, rows
from support.benchmarks.one_run import Run, run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

LEVELS = next(way for way in WAYS if way.name == "levels")
SLOTS = next(way for way in WAYS if way.name == "slots")


def cell(size: int, seconds: float, code: int | None = 0, nodes: int = 0) -> Cell:
    return Cell("slots", "states", size, nodes or size, "hash", Run(code, seconds, 100 + size, ""))


def test_the_exponent_is_that_of_the_last_step_beyond_the_smallest_graph() -> None:
    cells = [cell(1, 0.5), cell(10, 1.5), cell(100, 100.5)]
    assert exponent(cells, by_nodes=False) == pytest.approx(2)
    assert exponent([*cells, cell(1_000, 1_000, None)], by_nodes=False) == pytest.approx(2)


def test_the_exponent_of_levels_is_that_of_their_nodes() -> None:
    cells = [cell(1, 0.5, nodes=5), cell(4, 1.5, nodes=10), cell(8, 2.5, nodes=20)]
    assert exponent(cells, by_nodes=True) == pytest.approx(1)


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param([cell(1, 0.5), cell(10, 1.5)], id="two"),
        pytest.param([cell(1, 0.5), cell(10, 1.5), cell(100, 3, 2)], id="one-refused"),
        pytest.param([cell(1, 0.5), cell(10, 0.6), cell(100, 0.7)], id="next-to-no-time"),
    ],
)
def test_no_exponent_is_told_of_too_little(cells: list[Cell]) -> None:
    assert exponent(cells, by_nodes=False) is None


def test_rows_say_what_was_stopped_and_refused(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    cells = [cell(1_000, 40.0, None), cell(10, 9.0), cell(10, 1.0, 1), cell(100, 3.0, 2)]
    kept.write_text("".join(f"{json.dumps(asdict(each))}\n" for each in cells))
    shown = [(row[0], row[1], row[5]) for row in rows(SLOTS, read(kept))]
    assert shown == [
        ("states: 10", "10", "1"),
        ("states: 100", "100", "no result"),
        ("states: 1,000", "1,000", "stopped"),
        ("exponent", "", ""),
        ("most memory, MB", "", "1,100"),
    ]


def test_a_run_is_a_process_of_its_own(tmp_path: Path) -> None:
    def work() -> int:
        os.write(2, b"one\ntwo\n")
        return 3

    done = run(work, 60, tmp_path / "log")
    assert (done.code, done.told) == (3, "two")
    assert done.megabytes > 1


def test_a_run_that_raises_is_told(tmp_path: Path) -> None:
    def work() -> int:
        raise ValueError("no")

    done = run(work, 60, tmp_path / "log")
    assert done.code not in (0, 1, None)
    assert done.told == "ValueError: no"


def test_a_run_is_stopped_after_its_time(tmp_path: Path) -> None:
    def work() -> int:
        while True:
            pass

    done = run(work, 0.5, tmp_path / "log")
    assert done.code is None
    assert 0 < done.seconds < 5
