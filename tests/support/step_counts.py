"""How many steps loops run, and how many rows they keep, after passes that trim them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from scanopt_cli.analysis.buffers import trimmed
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import TRACED
from support.evaluating import assert_same_outcomes
from support.graph_building import only_scan, optimized, outputs_of, scan

N = pt.lscalar("n")


def steps_of(view: ScanView) -> str:
    return str(Lengths().value_of(view.n_steps))


def rows_of(graph: Graph) -> list[str]:
    view = only_scan(graph.fgraph)
    lengths = Lengths(view.n_steps)
    return [str(rows(view, slot, lengths)) for slot in view.of_kind(*TRACED)]


def check(graph: Graph, *others: Graph, counts: tuple[int, ...] = (0, 1, 2, 5, 30)) -> None:
    for n in counts:
        values = {
            "n": n,
            "x": 1.01,
            "start": [1.0, 2.0],
            "s": np.linspace(0, 1, n),
            "batch": [1.0, 0.9],
        }
        expected = outputs_of(graph, **values)
        for other in others:
            assert_same_outcomes(expected, outputs_of(other, **values))


def trimmed_to(graph: Graph, passes: str) -> tuple[str, list[str], list[str]]:
    """Steps after ``passes``, rows that `save-mem` keeps then, and what the passes say."""
    after, remarks = optimized(graph, passes)
    assert trimmed(only_scan(after.fgraph)) == []
    both, _ = optimized(graph, f"{passes},save-mem")
    check(graph, after, both)
    return steps_of(only_scan(after.fgraph)), rows_of(both), remarks


def unchanged(graph: Graph, passes: str) -> list[str]:
    after, remarks = optimized(graph, passes)
    check(graph, after)
    assert all(remark.startswith("missed") for remark in remarks), remarks
    return remarks


def noisy_walk() -> tuple[Any, Any]:
    """The states of a walk of 100 steps, and the generator after it, which has no trace."""
    rng = pt.random.type.random_generator_type("rng")

    def step(y: Any, generator: Any) -> list[Any]:
        generator, draw = pt.random.normal(rng=generator).owner.outputs
        return [y + draw, generator]

    ys, last = scan(step, outputs_info=[pt.dscalar("x"), rng], n_steps=100)
    return ys, last
