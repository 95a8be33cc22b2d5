"""The tables of benchmarks as files: what stands above them, and how times become rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from support.benchmarks.figures import (
    OF_RESULTS,
    OfResults,
    Timed,
    command_of,
    machine,
    of_results,
    show,
    write,
)

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "tests" / "benchmarks"


def names() -> list[str]:
    """Return the names of all tables: of tests, their times, `make growth`, `make throughput`."""
    handed = [
        name
        for file in sorted(BENCHMARKS.glob("test_*.py"))
        for name in re.findall(r'show_table\(\s*"(\w+)"', file.read_text())
    ]
    beside = (BENCHMARKS / "test_beside_pytensor.py").read_text()
    handed += re.findall(r'"(zoo|beside_pytensor)"', beside)
    handed += [
        f"growth_{way.name.lower()}" for way in import_module("benchmarks.command_growth").WAYS
    ]
    handed += import_module("benchmarks.throughput").TABLES
    return [*handed, *(spec.name for spec in OF_RESULTS.values())]


@dataclass(frozen=True)
class Given:
    """Stands in for pytest's settings."""

    args: tuple[str, ...]
    figures: str | None = None

    @property
    def invocation_params(self) -> Given:
        return self

    def getoption(self, name: str, default: Any = None) -> Any:
        assert name == "--figures"
        return self.figures


def test_a_table_as_a_file(tmp_path: Path) -> None:
    heads, rows = ("ms", "PyTensor", "scanopt"), [["a|b", "1.5", "0.3"], ["c", "2", ""]]
    file = write(tmp_path / "new", "small", heads, rows, "pytest tests/benchmarks")
    origin, empty, *table = file.read_text().splitlines()
    assert file == tmp_path / "new" / "small.md"
    assert re.fullmatch(r"Measured on \d{4}-\d\d-\d\d, .+, by `pytest tests/benchmarks`\.", origin)
    assert machine() in origin
    for word in ("cores of a", "Python 3.", "PyTensor 3.", "Numba 0.", "LLVM "):
        assert word in origin
    assert empty == ""
    assert table == [
        "| ms | PyTensor | scanopt |",
        "|---|---:|---:|",
        r"| a\|b | 1.5 | 0.3 |",
        "| c | 2 |  |",
    ]


def test_times_become_rows() -> None:
    spec = OfResults("x", ("form",), {"none": "PyTensor"}, "µs")
    times = [
        Timed("gradient: a", {"name": "a", "form": "none"}, 3e-3),
        Timed("gradient: a", {"name": "a", "form": "loop"}, 2e-5),
        Timed("gradient: b", {"name": "b", "form": "none"}, 0.5e-6),
    ]
    heads, rows = of_results(times, spec)
    assert heads == ["µs", "PyTensor", "loop", ""]
    assert rows == [["a", "3000", "20", "150x"], ["b", "0.5", "", ""]]


def test_labels_of_different_kinds_stay_whole() -> None:
    spec = OfResults("x", ("by",))
    times = [Timed("value: a", {"by": len}, 1.0), Timed("gradient: a", {"by": len}, 2.0)]
    heads, rows = of_results(times, spec)
    assert heads == ["ms", "len"]
    assert rows == [["value: a", "1000"], ["gradient: a", "2000"]]


def test_times_without_ways() -> None:
    times = [Timed("start", {"arguments": ["passes"]}, 1.25), Timed("start", {}, 0.1)]
    assert of_results(times, OF_RESULTS["test_start.py"]) == (
        ["", "ms"],
        [["passes", "1250"], ["start", "100"]],
    )


def test_the_command_has_no_path_of_this_machine() -> None:
    file = ROOT / "tests" / "benchmarks" / "test_start.py"
    given: Any = Given(("-o", "addopts=", "--figures", "/some/where", str(file), "-k", "a or b"))
    assert command_of(given) == 'pytest -o addopts= tests/benchmarks/test_start.py -k "a or b"'
    joined: Any = Given(("--figures=/some/where", "tests"))
    assert command_of(joined) == "pytest tests"


def test_a_table_is_shown_and_written_if_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heads, rows = ("ms", "now"), [["a", "1"]]
    without: Any = Given(("tests",))
    show(without, "small", heads, rows)
    assert "now" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    asked: Any = Given(("tests",), str(tmp_path))
    show(asked, "small", heads, rows)
    assert [file.name for file in tmp_path.iterdir()] == ["small.md"]


def test_every_table_has_one_name_and_one_test() -> None:
    assert all((BENCHMARKS / name).exists() for name in OF_RESULTS)
    found = names()
    assert len(found) == len(set(found))
    assert {"first_call", "samplers", "zoo", "gradients", "start", "pages"} <= set(found)


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "figures" / "tables").glob("*.md")))
def test_tables_of_the_pages_have_known_names(file: Path) -> None:
    assert file.stem in names()


class Bench:
    """Stands in for the fixture of pytest-benchmark."""

    def __init__(self) -> None:
        self.disabled = False
        self.extra_info: dict[str, Any] = {}

    def pedantic(self, function: Callable[[], None], rounds: int) -> None:
        function()


_PROCESS = {"seconds": [2.0, 3.0], "memory": 300.0, "sampling": 1.5}


@pytest.mark.samplers
@pytest.mark.parametrize(
    ("module", "name", "found"),
    [
        ("test_first_call", "first_call", (_PROCESS, {**_PROCESS, "seconds": [0.5, 0.6]})),
        ("test_samplers", "samplers", (_PROCESS, {**_PROCESS, "seconds": [0.5, 0.6]})),
        ("test_pymc_models", "pymc_models", {"calls": [1e-5], "compiling": 2.0, "memory": 300.0}),
    ],
)
def test_tables_that_tests_make(
    module: str, name: str, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row has a cell below each head; the last has the means of the ratios, which are 1."""
    made = import_module(f"benchmarks.{module}")
    monkeypatch.setattr(made, "measured", lambda *_: found)
    shown: list[Any] = []
    made.test_all(Bench(), lambda *table: shown.append(table))
    ((title, heads, rows),) = shown
    assert title == name
    assert {len(row) for row in rows} == {len(heads)}
    means = [place for place, cell in enumerate(rows[-1]) if place and cell]
    for place in means:
        assert float(rows[-1][place].rstrip("x")) == 1
        # They stand below ratios.
        assert float(rows[0][place].rstrip("x")) == 1


@pytest.mark.jax
def test_the_table_of_model_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    made = import_module("benchmarks.test_model_loops")
    monkeypatch.setattr(made, "_compiled", lambda name, form: None)
    monkeypatch.setattr(made, "_best", lambda functions, _: [4.0, 2.0, *[3.0] * len(functions[2:])])
    shown: list[Any] = []
    made.test_all(Bench(), lambda *table: shown.append(table))
    ((title, heads, rows),) = shown
    assert title == "model_loops"
    assert {len(row) for row in rows} == {len(heads)}
    assert rows[0][1:6] == ["4", "2", "2.0x", "3", "1.50x"]
