"""Graphs of a given size that give every pass something to do."""

from __future__ import annotations

import pytensor.tensor as pt

from graph_building import graph_of, scan
from scanopt_cli.graphs.graph import Graph

SIZES = (100, 1_000, 10_000)
# Nodes that one loop of `sized_graph` brings, outside and inside.
_NODES_A_LOOP = 39
# `pytensor.scan` walks all that its inputs depend on, so one chain of a thousand loops takes hours.
_CHAIN = 8


def sized_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, chains of loops, with work for each pass.

    Every loop has an unused output and state, equal sequences, a uniform sequence and a trace of
    which the last row is read. Each chain has inputs of its own: PyTensor keeps the readers of a
    variable in a list and searches it, so one input of thousands of loops costs more than they do.
    """

    def step(a, b, c, y, z):
        return [pt.tanh(y * a + b) + c, z + 1, y * z]

    results = []
    for _ in range(max(nodes // (_NODES_A_LOOP * _CHAIN), 1)):
        state, s, n = pt.dscalar("x"), pt.dvector("s"), pt.lscalar("n")
        for _ in range(min(_CHAIN, max(nodes // _NODES_A_LOOP, 1))):
            ys, _, _ = scan(
                step,
                sequences=[pt.exp(s + 1), pt.exp(1 + s), pt.zeros((n,))],
                outputs_info=[state, state, None],
                n_steps=n,
            )
            state = ys[-1]
        results.append(state)
    return graph_of(*results)
