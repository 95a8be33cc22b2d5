"""Write the corpus of a version of the format: ``python write_corpus.py DIRECTORY``.

Run once for each version of the format, when it is new, and never again for it: later versions of
scanopt and of PyTensor have to read these very files. ``PYTHONPATH`` has to hold ``tests``.

``NAME.scanopt`` is a graph. Of graphs that run, it has a recorded call, and ``NAME.outputs.npz``
what the graph returned for it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.basic import constant

from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.serialization.data.names import CLASSES
from scanopt_cli.serialization.saving import save
from support.real_graphs import GRAPHS

RUN = {
    "arithmetic": [[0.5, -1.5, 2.0], [[1.0, 2.0, -3.0]]],
    "reductions": [np.arange(24.0).reshape(2, 3, 4)],
    "scan_powers": [1.25],
    "scan_gradient": [1.25],
    "scan_second_derivative": [1.25],
    "while_scan": [3.0],
    "nested_scans": [[0.5, 1.5]],
}
"""Graphs that are run, and their arguments."""


def odd_numbers() -> tuple[list[Any], list[Any]]:
    """Constants of numbers that text does not hold, short and long, and in the order of Fortran."""
    x = pt.dscalar("x")
    payload = np.array([0x7FF8000000000123, 0xFFF0000000000000], dtype="uint64").view("float64")
    rows = np.asfortranarray(np.arange(40.0).reshape(5, 8)) * -0.0
    numbers = (payload, np.array([-0.0, np.inf]), rows, np.complex64(1 - 0.0j), np.float16(0.1))
    return [x], [x + constant(number) for number in (*numbers, np.uint8(255), np.int64(-(2**63)))]


def loops() -> tuple[list[Any], list[Any]]:
    """The loops that scanopt's passes make."""
    inputs, outputs = GRAPHS["scan_powers"]()
    graph = optimize((list(inputs), list(outputs)), "scan-to-loop").graph
    return graph.inputs, graph.outputs


def run(graph: Graph) -> list[np.ndarray]:
    """Return what a graph returns for its first recorded call."""
    values = dict(zip(graph.fgraph.inputs, graph.recorded[0], strict=True))
    function = pytensor.function(graph.inputs, graph.outputs, mode="FAST_COMPILE")
    return [np.asarray(value) for value in function(*(values[v] for v in graph.inputs))]


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, build in {**GRAPHS, "odd_numbers": odd_numbers, "loops": loops}.items():
        inputs, outputs = build()
        graph = as_graph((list(inputs), list(outputs)))
        if name in RUN and len(graph.inputs) == len(RUN[name]):
            given = zip(graph.inputs, RUN[name], strict=True)
            call = tuple(np.asarray(value, dtype=v.type.dtype) for v, value in given)
            graph = replace(graph, recorded=(call,))
            np.savez(directory / f"{name}.outputs.npz", *run(graph))
        save(graph, directory / f"{name}.scanopt")
    (directory / "names.txt").write_text("\n".join(sorted(CLASSES)) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
