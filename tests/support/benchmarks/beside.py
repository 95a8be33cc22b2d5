"""Measure functions side by side: time, peak memory, and growth with the size of the arguments."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import pytensor
import pytest
from pytensor.compile.mode import Mode

import scanopt_cli as so
from support.benchmarks.beside_cases import Case

type Function = Callable[..., Any]
type Row = tuple[str, ...]

ROWS = pytest.StashKey[dict[str, list[Row]]]()
"""Where the rows of tables are until all tests are done, by the names of the tables."""

ALONE = "PyTensor"
WAYS: Mapping[str, str | None] = {ALONE: None, "default": "default", "grad": "grad", "loop": "loop"}
"""Compiled by PyTensor alone, and in `enabled` with each preset."""
_SECONDS = 0.4
_ROUNDS = 15
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a call takes: processor seconds, the shortest; MiB at the peak, if that can be told."""

    seconds: float
    memory: float | None


def compiled(case: Case, mode: Mode) -> dict[str, Function]:
    """Compile a case in each way; a function takes its arguments as they are."""
    inputs, outputs = case.build()
    made = {}
    for way, preset in WAYS.items():
        arguments = {"mode": mode, "trust_input": True, "on_unused_input": "ignore"}
        if preset is None:
            made[way] = pytensor.function(list(inputs), list(outputs), **arguments)
        else:
            with so.enabled(preset):
                made[way] = pytensor.function(list(inputs), list(outputs), **arguments)
    return made


def measured(functions: Mapping[str, Function], arguments: Sequence[Any]) -> dict[str, Measured]:
    """Call functions in turn, round after round, so that all meet the same machine."""
    times: dict[str, list[float]] = {way: [] for way in functions}
    calls = {}
    for way, function in functions.items():
        function(*deepcopy(arguments))
        calls[way] = max(1, int(_SECONDS / _ROUNDS / max(_seconds(function, arguments, 1), 1e-7)))
        calls[way] = min(calls[way], 1000)
    for _ in range(_ROUNDS):
        for way, function in functions.items():
            times[way].append(_seconds(function, arguments, calls[way]))
    return {
        way: Measured(min(times[way]), _memory(function, arguments))
        for way, function in functions.items()
    }


def exponent(small: float, large: float, scale: int) -> float:
    """Return by which power of the size the time grows."""
    return log(large / small) / log(scale)


def _seconds(function: Function, arguments: Sequence[Any], calls: int) -> float:
    begin = time.thread_time()
    for _ in range(calls):
        function(*arguments)
    return (time.thread_time() - begin) / calls


def _memory(function: Function, arguments: Sequence[Any]) -> float | None:
    """Return how many MiB a call needs at its peak beside what there is before it (on Linux)."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what earlier calls left would be used again
        _CLEAR.write_text("5")
    except (AttributeError, OSError):
        return None
    before = _status("VmRSS")
    result = function(*arguments)
    peak = _status("VmHWM")
    del result
    return max(peak - before, 0) / 1024


def _status(entry: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{entry}:"))
