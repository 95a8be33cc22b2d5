"""Saving a graph and loading it again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save


def assert_comes_back(graph: Any, file: Path) -> Graph:
    """Save and load a graph, as data and as a pickle: the digest is the same, and so are names."""
    whole = as_graph(graph)
    as_data = file.with_suffix(".scanopt")
    _assert_same(whole, as_data)
    # What the second file says, all names, types, constants to the bit and sharing, the first says.
    first = as_data.read_bytes()
    save(replace(load(as_data), source=whole.source, versions={}), as_data)
    assert as_data.read_bytes() == first
    as_data.unlink()
    return _assert_same(whole, file)


def _assert_same(whole: Graph, file: Path) -> Graph:
    save(whole, file)
    again = load(file)
    for options in ({}, {"names": True, "gradients": True}):
        assert digest(again, **options) == digest(whole, **options)
    assert [v.name for v in again.inputs] == [v.name for v in whole.inputs]
    assert [v.name for v in again.outputs] == [v.name for v in whole.outputs]
    return again
