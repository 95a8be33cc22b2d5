"""Build every sample graph: ``python sample_graphs/build.py [directory]``.

A sample is a script beside this one with a function ``build()`` that returns graphs by name, each
an ``(inputs, outputs)`` pair. Each graph is written to ``<name>.pkl``, here unless told otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from pytensor.graph.basic import Variable

from scanopt_cli.serialization.saving import save

HERE = Path(__file__).parent
SAMPLES = (
    "seed_power",
    "ar2",
    "newton",
    "nested",
    "rnn",
    "kalman",
    "random_walk",
    "unused",
    "duplicates",
    "wrapped",
    "vectorised",
)
EXTRAS = {"garch": "pymc"}
"""Samples that need one package more."""


def write(graphs: Mapping[str, tuple[list[Variable], list[Variable]]], directory: Path) -> None:
    """Save each graph into ``directory`` and print the path of its file."""
    for name, graph in graphs.items():
        path = directory / f"{name}.pkl"
        save(graph, path)
        print(path)


def main() -> None:
    """Build all samples whose packages are installed."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    directory.mkdir(parents=True, exist_ok=True)
    available = [name for name, package in EXTRAS.items() if find_spec(package)]
    for name in (*SAMPLES, *available):
        write(import_module(name).build(), directory)
    for name, package in EXTRAS.items():
        if name not in available:
            print(f"{name}: skipped, {package} is not installed", file=sys.stderr)


if __name__ == "__main__":
    main()
