"""The child process that measures one graph, compiled by one mode, as it is told.

It takes turns with those of other graphs, so that a busy machine is busy for all of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from math import ceil
from time import perf_counter, process_time
from typing import Any

import numpy as np
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.benchmarking import process_memory
from scanopt_cli.benchmarking.calling import await_results, compiled_as_users_do
from scanopt_cli.benchmarking.finder import Finder
from scanopt_cli.benchmarking.profiling import profiled
from scanopt_cli.benchmarking.requests import BenchRequest, Way
from scanopt_cli.benchmarking.sized_arguments import SizedArguments
from scanopt_cli.serialization.payload import decode
from scanopt_cli.verification.answering import answer_orders
from scanopt_cli.verification.child_process import fine_clock
from scanopt_cli.verification.modes import compiling_mode

# A call that takes longer is not repeated where it need not be.
_LONG = 1.0
_MOST_CALLS = 100_000


def main(directory: str) -> None:
    """Measure the graph of the request in ``directory``, order by order."""
    answer_orders(directory, lambda request: _Session(request).carry_out)


class _Session:
    """One graph and what is known of its calls."""

    def __init__(self, request: BenchRequest) -> None:
        self._request = request
        self._graphs = [decode(tables, "the request").fgraph for tables in request.graphs]
        self._sized = SizedArguments(request, self._graphs)
        # What is compiled to find arguments must not be what is measured: it is of other graphs.
        self._orders: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "find": lambda _: Finder(request).find(),
            "compile": self._compile,
            "first": self._first,
            "memory": self._memory,
            "turn": self._turn,
            "peak": self._peak,
            "profile": self._profile,
        }
        self._base: tuple[Any, ...] | None = None
        self._values: tuple[Any, ...] = ()
        self._calls = 0
        self._call_time = 0.0
        self._taken_at_start = process_memory.begin()

    def carry_out(self, order: str, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out one order."""
        return self._orders[order](details)

    @property
    def _graph(self) -> FunctionGraph:
        return self._graphs[self._request.which]

    def _compile(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        wall, processor = perf_counter(), process_time()
        mode = compiling_mode(self._request.modes[0])
        self._function, self._overwrites = compiled_as_users_do(self._graph, mode)
        return {"wall": perf_counter() - wall, "processor": process_time() - processor}

    def _first(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make arguments of a size, and call with them once."""
        self._values = self._arguments(details)
        self._calls = 0
        values = self._given()
        wall, processor = perf_counter(), process_time()
        outputs = self._called(values)
        self._call_time = perf_counter() - wall
        processor = process_time() - processor
        return {
            "wall": self._call_time,
            "processor": processor,
            "outputs": [_fingerprint(output) for output in outputs],
            "arguments": self._sized.described(self._values),
        }

    def _arguments(self, details: Mapping[str, Any]) -> tuple[Any, ...]:
        way, size = Way(details["attempt"], details["together"]), details["size"]
        if self._base is None:
            self._base = self._sized.base(way)
        return self._base if size is None else self._sized.grown(self._base, way, size)

    def _memory(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Measure the memory of a call: results, buffers, and all between."""
        found = []
        for _again in range(1 if self._call_time > _LONG else 2):
            self._function.free()
            values = self._given()
            before = process_memory.begin()
            wall = perf_counter()
            outputs = self._called(values)
            self._call_time = min(self._call_time, perf_counter() - wall)
            after = process_memory.peak()
            del outputs
            if before is not None and after is not None:
                found.append(max(after - before, 0))
        return {"bytes": min(found) if found else None}

    def _turn(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call for some time; return how long each call takes."""
        if not self._calls:
            if self._call_time < _LONG:
                wall = perf_counter()
                self._called(self._given())
                self._call_time = min(self._call_time, perf_counter() - wall)
            wanted = ceil(details["seconds"] / max(self._call_time, 1e-7))
            self._calls = min(wanted, _MOST_CALLS)
        gc.collect()
        gc.disable()
        try:
            with fine_clock():
                wall, processor = self._timed()
        finally:
            gc.enable()
        return {
            "calls": self._calls,
            "wall": wall / self._calls,
            "processor": processor / self._calls,
        }

    def _timed(self) -> tuple[float, float]:
        """Return the wall and the processor time of all calls of a turn."""
        if not self._overwrites:
            wall, processor = perf_counter(), process_time()
            for _ in range(self._calls):
                outputs = self._function(*self._values)
            await_results(outputs)
            return perf_counter() - wall, process_time() - processor
        total = [0.0, 0.0]
        for _ in range(self._calls):
            values = self._given()
            wall, processor = perf_counter(), process_time()
            await_results(self._function(*values))
            total[0] += perf_counter() - wall
            total[1] += process_time() - processor
        return total[0], total[1]

    def _peak(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the most memory since the start; to be asked before `_memory` forgets it."""
        now, before = process_memory.peak(), self._taken_at_start
        return {"bytes": None if now is None or before is None else max(now - before, 0)}

    def _profile(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        return profiled(
            self._graph, self._request.modes[0], self._arguments(details), details["seconds"]
        )

    def _given(self) -> Sequence[Any]:
        """Return the arguments, as copies if the function overwrites them."""
        return deepcopy(self._values) if self._overwrites else self._values

    def _called(self, values: Sequence[Any]) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            outputs: Sequence[Any] = self._function(*values)
        return await_results(outputs)


def _fingerprint(output: Any) -> Mapping[str, Any] | None:
    """Return what tells values that are different from each other, but for rounding."""
    try:
        value = np.asarray(output)
        if value.dtype.kind not in "biufc":
            return None
        return {
            "shape": list(value.shape),
            "finite": bool(np.isfinite(value).all()),
            "sum": float(np.abs(np.nan_to_num(value, posinf=0, neginf=0)).sum(dtype=np.float64)),
        }
    except (TypeError, ValueError):
        return None
