"""Graphs that are deep in every way: no command recurses as far as they are."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.saving import save
from support.benchmarks.growing_graphs import (
    chain_before,
    gradient_of_a_nest,
    layers_in_a_row,
    long_body,
    nest,
    nest_of_layers,
    scans_in_a_row,
)
from support.command_line import scanopt

# Python's limit is 1,000 calls.
_DEEPER = 1_500
_DEEPEST = 50_000


@pytest.mark.parametrize(
    "maker",
    [
        partial(nest, 8),
        partial(long_body, _DEEPER),
        *(
            pytest.param(maker, marks=pytest.mark.deep)
            for maker in (
                partial(layers_in_a_row, _DEEPER),
                partial(chain_before, _DEEPEST),
                partial(gradient_of_a_nest, 8),
                partial(nest_of_layers, 8),
                partial(scans_in_a_row, 200),
            )
        ),
    ],
    ids=lambda one: f"{one.func.__name__}-{one.args[0]}",
)
def test_commands_take_deep_graphs(maker: partial[Graph], tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.scanopt", "a.pkl", "b.scanopt")]
    graph = maker()
    for file in files[:2]:
        save(graph, file)
    before, pickled, after = files
    for words in (
        ("hash", before, pickled),
        ("inspect", before),
        ("check", before),
        # What takes a minute for the deepest is left to `make growth`.
        *([("optimize", before, "-o", after)] if maker.args[0] < _DEEPEST else []),
        ("diff", before, after if maker.args[0] < _DEEPEST else pickled),
    ):
        done = scanopt(*words)
        assert done.code in (0, 1), f"{words[0]}: {done.err}"
