"""The ways by which a graph of the zoo comes to be computed, each with scanopt's hand in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor import function
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Variable

import scanopt_cli as so

# Without fusion: in Python, PyTensor 3.3.7 computes a fused reciprocal in single precision.
VM = Mode("vm", "fast_run").excluding("fusion")
NUMBA = get_mode("NUMBA")

type Way = Callable[[Sequence[Variable], Sequence[Variable], Mode], Callable[..., Any]]


def _saved(preset: str) -> Way:
    def compile_it(inputs: Any, outputs: Any, mode: Mode) -> Any:
        graph = so.optimize((inputs, outputs), preset).graph
        return function(graph.inputs, graph.outputs, mode=mode, on_unused_input="ignore")

    return compile_it


def _enabled(preset: str) -> Way:
    def compile_it(inputs: Any, outputs: Any, mode: Mode) -> Any:
        with so.enabled(preset):
            return function(inputs, outputs, mode=mode, on_unused_input="ignore")

    return compile_it


def _including(inputs: Any, outputs: Any, mode: Mode) -> Any:
    return function(inputs, outputs, mode=mode.including("scanopt"), on_unused_input="ignore")


WAYS: dict[str, Way] = {
    "optimize -p default": _saved("default"),
    "optimize -p grad": _saved("grad"),
    "enabled()": _enabled("grad"),
    "enabled('default')": _enabled("default"),
    "including": _including,
}
