"""Saving a graph and loading it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save


def assert_comes_back(graph: Any, file: Path) -> Graph:
    """Save and load a graph: the digest is the same, with names and gradients, and so are names."""
    whole = as_graph(graph)
    save(whole, file)
    again = load(file)
    for options in ({}, {"names": True, "gradients": True}):
        assert digest(again, **options) == digest(whole, **options)
    assert [v.name for v in again.inputs] == [v.name for v in whole.inputs]
    assert [v.name for v in again.outputs] == [v.name for v in whole.outputs]
    return again
