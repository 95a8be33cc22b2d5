"""Graphs whose code differs have different keys, though a loop of them computes the same."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan

from scanopt_cli.loop.codegen.keys import key_of
from support.graph_building import scan


def _of_taps(*taps: int) -> FunctionGraph:
    """Return a graph of one Scan over inputs of equal types: a state for each of ``taps``."""
    start = pt.vector("start", shape=(3,))
    traces = scan(
        lambda *states: [pt.exp(state) for state in states],
        outputs_info=[{"initial": start[:-tap], "taps": [tap]} for tap in taps],
        n_steps=3,
    )
    found: Any = next(
        v.owner for v in ancestors(traces) if v.owner is not None and isinstance(v.owner.op, Scan)
    )
    inputs = [pt.lscalar("n_steps"), *(pt.vector(f"buffer{i}") for i in range(len(taps)))]
    return FunctionGraph(inputs, found.op.make_node(*inputs).outputs, clone=False)


def test_the_order_of_a_loops_states_counts() -> None:
    """The two compute the same, but for what their outputs are: of which there are two here."""
    assert key_of(_of_taps(-2, -3)) == key_of(_of_taps(-2, -3))
    assert key_of(_of_taps(-2, -3)) != key_of(_of_taps(-3, -2))
