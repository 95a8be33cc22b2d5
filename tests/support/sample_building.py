"""The sample graphs, built."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from build import SAMPLES
from scanopt_cli.ir.graph import Graph, from_io


@cache
def samples() -> dict[str, Graph]:
    """Return the graphs of all samples that need no package more, by name."""
    built = [import_module(module).build() for module in SAMPLES]
    return {name: from_io(*graph) for sample in built for name, graph in sample.items()}
