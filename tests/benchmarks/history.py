"""Benchmarks over time: ``make bench-save`` keeps a run, and this makes a page of all runs.

``python tests/benchmarks/history.py RUNS PAGE.md`` reads what pytest-benchmark has stored in RUNS,
and writes PAGE.md and pictures beside it. Only times of one machine are compared: runs are told
apart by the processor, its cores, and the version of Python.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from scanopt_cli.text import plural, time_text
from support.benchmarks.figures import markdown

_ROW, _LABEL, _CHART, _VALUE = 22, 330, 260, 150
# A chart reaches from half the first time to twice that, if no time is outside.
_LEAST_RANGE = 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run: when, of which commit, on which machine, and the shortest time of each benchmark."""

    date: str
    commit: str
    machine: str
    seconds: Mapping[str, float]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Run:
        """Return the run that pytest-benchmark has stored."""
        commit, machine = data["commit_info"], data["machine_info"]
        dirty = "+" if commit.get("dirty") else ""
        cpu = machine.get("cpu", {})
        python = ".".join(machine["python_version"].split(".")[:2])
        return cls(
            date=data["datetime"][:10],
            commit=f"{(commit.get('id') or '?')[:7]}{dirty}",
            machine=f"{cpu.get('brand_raw') or machine['machine']}, {cpu.get('count')} cores, "
            f"{machine['system']}, Python {python}",
            seconds={one["fullname"].rpartition("/")[2]: one["stats"]["min"] for one in data[_ALL]},
        )


_ALL = "benchmarks"


def read_runs(directory: Path) -> list[Run]:
    """Return all runs that are stored, the oldest first."""
    stored = [json.loads(file.read_text()) for file in directory.glob("*/*.json")]
    return [Run.of(data) for data in sorted(stored, key=lambda data: str(data["datetime"]))]


def by_machine(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Return the runs of each machine."""
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[run.machine].append(run)
    return dict(found)


def page(runs: Sequence[Run], picture: str) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from ("# Benchmarks over time", "")
    yield "What `make bench-save` has kept: the shortest time of each benchmark of a run. Machines"
    yield "are busy, and those of CI are others every week: times of one machine alone are"
    yield "compared, and a change of a tenth says nothing. `make bench-compare` shows all runs"
    yield "beside each other."
    for place, (machine, own) in enumerate(by_machine(runs).items()):
        yield from ("", f"## {machine}", "")
        first, last = own[0], own[-1]
        dates = f"{first.date} ({first.commit})"
        if len(own) > 1:
            dates += f" to {last.date} ({last.commit})"
        yield f"{plural(len(own), 'run')}: {dates}."
        yield from ("", f"![times of each benchmark, run by run]({picture.format(place)})", "")
        yield from markdown(("benchmark", "first", "last", "last / first"), list(_rows(own)))


def _rows(runs: Sequence[Run]) -> Iterator[list[str]]:
    for name, seconds in _series(runs).items():
        first, last = seconds[0], seconds[-1]
        change = f"{last / first:.2f}" if len(seconds) > 1 else ""
        yield [f"`{name}`", time_text(first), time_text(last), change]


def _series(runs: Sequence[Run]) -> dict[str, list[float]]:
    """Return the times of each benchmark of the last run, in all runs that have it."""
    return {
        name: [run.seconds[name] for run in runs if name in run.seconds]
        for name in runs[-1].seconds
    }


def chart(runs: Sequence[Run]) -> str:
    """Return a picture: a line for each benchmark, of its times beside the first one."""
    series = _series(runs)
    width, height = _LABEL + _CHART + _VALUE, _ROW * (len(series) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12" fill="#888">',
        f'<text x="{_LABEL}" y="{_ROW - 8}">dotted: the first run; above it slower</text>',
    ]
    for place, (name, seconds) in enumerate(series.items(), 1):
        middle = place * _ROW + _ROW / 2
        ratios = [log2(one / seconds[0]) for one in seconds]
        reach = max(_LEAST_RANGE, *map(abs, ratios))
        step = _CHART / max(1, len(seconds) - 1)
        points = [
            (_LABEL + step * i, middle - ratio / reach * (_ROW / 2 - 2))
            for i, ratio in enumerate(ratios)
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        x, y = points[-1]
        parts += [
            f'<text x="0" y="{middle + 4:.1f}">{escape(name.partition("::")[2])}</text>',
            f'<path d="M{_LABEL} {middle:.1f}h{_CHART}" stroke="#888" stroke-dasharray="2 4"/>',
            f'<polyline points="{line}" fill="none" stroke="#3778c2" stroke-width="1.5"/>',
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="#3778c2"/>',
            f'<text x="{_LABEL + _CHART + 10}" y="{middle + 4:.1f}">'
            f"{escape(time_text(seconds[-1]))}</text>",
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def write_page(directory: Path, file: Path) -> list[Path]:
    """Write the page of the runs in a directory, and a picture for each machine beside it."""
    runs = read_runs(directory)
    if not runs:
        raise SystemExit(f"history: there is no run in {directory}; `make bench-save` keeps one")
    file.parent.mkdir(parents=True, exist_ok=True)
    picture = f"{file.stem}-{{}}.svg"
    file.write_text("\n".join(page(runs, picture)) + "\n", encoding="utf-8")
    written = [file]
    for place, own in enumerate(by_machine(runs).values()):
        written.append(file.with_name(picture.format(place)))
        written[-1].write_text(chart(own), encoding="utf-8")
    return written


if __name__ == "__main__":
    for one in write_page(Path(sys.argv[1]), Path(sys.argv[2])):
        print(one)
