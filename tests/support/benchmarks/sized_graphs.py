"""Graphs of a given size that give every pass something to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph

from scanopt_cli import loop
from scanopt_cli.ir.graph import Graph
from support.graph_building import graph_of, scan

SIZES = (100, 1_000, 10_000)
# Nodes that one loop of a chain brings, outside and inside, and one differentiated loop.
_NODES_A_LOOP = 44
_NODES_A_GRADIENT = 62
_NODES_A_SUM = 22
_NODES_A_READER = 48
_NODES_A_TRACED_LOOP = 6
_NODES_A_NESTED_LOOP = 6
_NODES_A_BACKWARD_LOOP = 20
_NODES_A_NETWORK = 20
_NODES_A_SOLVE = 12
_NODES_A_FILTER = 8
_NODES_A_LAYER = 7
# `pytensor.scan` walks all that its inputs depend on, so one chain of a thousand loops takes hours.
_CHAIN = 8


def sized_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, chains of loops, with work for most passes.

    Every loop has an unused output, two states that are equal and one that is unused, equal
    sequences, a uniform sequence and a trace of which the last row is read. Two chains run side by
    side, and each pair has inputs of its own: PyTensor keeps the readers of a variable in a list
    and searches it, so one input of thousands of loops costs more than they do.
    """

    def step(a, b, c, y, z, u, v):
        return [pt.tanh(y * a + b) + c + 0.0 * u, z + 1, u * 2, 2 * v, y * z]

    results = []
    loops = max(nodes // _NODES_A_LOOP, 2)
    for _ in range(max(loops // (2 * _CHAIN), 1)):
        s, n = pt.dvector("s"), pt.lscalar("n")
        for state in pt.dscalars("x", "y"):
            for _ in range(min(_CHAIN, loops // 2)):
                ys, _, us, vs, _ = scan(
                    step,
                    sequences=[pt.exp(s + 1), pt.exp(1 + s), pt.zeros((n,))],
                    outputs_info=[state, state, state, state, None],
                    n_steps=n,
                )
                state = ys[-1] + us[-1] + vs[-1]
            results.append(state)
    return graph_of(*results)


def differentiated_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, loops with their gradients, each with its inputs."""
    results = []
    for _ in range(max(nodes // _NODES_A_GRADIENT, 1)):
        x, n = pt.dscalar("x"), pt.lscalar("n")
        ys = scan(lambda y: y - 0.1 * y**2, outputs_info=[x], n_steps=n)
        results.append(pt.grad(ys[-1], x))
    return graph_of(*results)


def summing_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, loops that add up outer products."""
    results = []
    for _ in range(max(nodes // _NODES_A_SUM, 1)):
        u, v, start = pt.dmatrix("u"), pt.dmatrix("v"), pt.dmatrix("start")
        ys = scan(
            lambda a, b, s: s + pt.exp(a)[:, None] * b[None, :],
            sequences=[u, v],
            outputs_info=[start],
        )
        results.append(ys.owner.inputs[0][-1])
    return graph_of(*results)


def running_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, loops of running sums, and products of factors."""
    results = []
    for _ in range(max(nodes // _NODES_A_SUM, 1)):
        v, start, w = pt.dvector("v"), pt.dscalar("start"), pt.dscalar("w")
        results += scan(
            lambda a, s, y, w: [s + pt.exp(a), pt.tanh(y) + a, pt.mul(w, y, a), pt.mul(w, y, y)],
            sequences=[v],
            outputs_info=[start, start, None, None],
            non_sequences=[w],
        )
    return graph_of(*results)


def networks_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, loops that multiply a sequence by two matrices."""
    results = []
    for _ in range(max(nodes // _NODES_A_NETWORK, 1)):
        start = pt.dvector("start")
        rows, w, u = pt.dmatrices("rows", "w", "u")
        ys = scan(
            lambda row, y, w, u: pt.tanh(row @ w) * y + u @ row,
            sequences=[rows],
            outputs_info=[start],
            non_sequences=[w, u],
        )
        results.append(ys[-1])
    return graph_of(*results)


def solves_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, loops that solve by one matrix in each step."""
    results = []
    for _ in range(max(nodes // _NODES_A_SOLVE, 1)):
        x, w = pt.dvector("x"), pt.dmatrix("w")
        ys = scan(
            lambda y, w: pt.linalg.solve(w, y, b_ndim=1),
            outputs_info=[x],
            non_sequences=[w],
            n_steps=9,
        )
        results += [ys[-1]]
    return graph_of(*results)


def filters_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, TracedLoops of which each two share a matrix."""

    def step(carry, row, w):
        y, p = carry
        return (y + p @ row, pt.tanh(p @ w)), None

    results = []
    for _ in range(max(nodes // _NODES_A_FILTER // 2, 1)):
        y, p, w = (pt.tensor(shape=(3,) * ndim, dtype="float64") for ndim in (1, 2, 2))
        for _ in range(2):
            rows = pt.tensor(shape=(None, 3), dtype="float64")
            results.append(loop.scan(step, (y, p), rows, w)[0][0])
    return graph_of(*results)


def gates_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, TracedLoops that read two products of a state."""

    def step(y, _, weights):
        w, u = weights
        return pt.tanh(w @ y) * pt.cos(u @ y), None

    results = []
    for _ in range(max(nodes // _NODES_A_NETWORK, 1)):
        x, w, u = pt.dvector("x"), pt.dmatrix("w"), pt.dmatrix("u")
        results.append(_carried(step, x, (w, u), 10))
    return graph_of(*results)


def layers_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, chains of OpFromGraphs with an output for nobody."""
    results = []
    for number in range(max(nodes // (_NODES_A_LAYER * _CHAIN), 1)):
        p, q = pt.dscalars("p", "q")
        state, other = pt.dscalars("x", "y")
        for place in range(_CHAIN):
            kept = pt.tanh(p * (1 + place + number * _CHAIN))
            layer = OpFromGraph([p, q], [kept + q, pt.exp(q), p], name="layer")
            state, other, _ = layer(state, other)
        results.append(state)
    return graph_of(*results)


def reading_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, loops of which a few rows or their sum is read."""
    results = []
    for _ in range(max(nodes // _NODES_A_READER, 1)):
        x, n = pt.dscalar("x"), pt.lscalar("n")
        counted = scan(lambda y: pt.tanh(y), outputs_info=[x], n_steps=n)
        both_ends = scan(lambda y: pt.sin(y), outputs_info=[x], n_steps=1000)
        summed = scan(lambda y: pt.cos(y), outputs_info=[x], n_steps=n)
        begun = scan(lambda y: y**2, outputs_info=[x], n_steps=1000)
        results += [counted[n - 1], both_ends[0] + both_ends[-1], summed.sum(), begun[:3]]
    return graph_of(*results)


def traced_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, TracedLoops of which the last row is read."""
    results = []
    for _ in range(max(nodes // _NODES_A_TRACED_LOOP, 1)):
        x, w = pt.dscalar("x"), pt.dscalar("w")
        _, ys = loop.scan(
            lambda states, _: ((pt.tanh(states[0] * states[1]), states[1]), states[0]),
            (x, w),
            max_steps=1000,
        )
        results += [ys[-1] + 1]
    return graph_of(*results)


def small_arrays_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, TracedLoops whose states are small vectors."""
    results = []
    for _ in range(max(nodes // _NODES_A_TRACED_LOOP, 1)):
        x, w = pt.dvector("x", shape=(2,)), pt.dmatrix("w", shape=(2, 2))
        results += [_carried(lambda y, _, w: (pt.tanh(w @ y), None), x, w, 10)]
    return graph_of(*results)


def loops_in_loops_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, TracedLoops whose steps are loops of two steps."""

    def twice(y, _, w):
        return _carried(lambda z, _, w: (pt.sin(z * w), None), y, w, 2), None

    results = []
    for _ in range(max(nodes // _NODES_A_NESTED_LOOP, 1)):
        x, w = pt.dscalars("x", "w")
        results += [_carried(twice, x, w, 10)]
    return graph_of(*results)


def backward_loops_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, TracedLoops with their gradients."""
    results = []
    for _ in range(max(nodes // _NODES_A_BACKWARD_LOOP, 1)):
        x, w = pt.dscalars("x", "w")
        last = _carried(lambda y, _, w: (pt.tanh(y * w), None), x, w, 1000)
        results += [last, pt.grad(last, w)]
    return graph_of(*results)


def _carried(step: Callable[..., Any], initial: Any, constants: Any, n_steps: int) -> Any:
    return loop.scan(step, initial, constants=constants, max_steps=n_steps)[0]


def invariant_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, loops with a state and terms that never change."""
    results = []
    for _ in range(max(nodes // _NODES_A_GRADIENT, 1)):
        x, w, n = pt.dscalar("x"), pt.dscalar("w"), pt.lscalar("n")
        same, ys = scan(
            lambda same, y, w: [w + 1, y * pt.exp(w) + same],
            outputs_info=[x, x],
            non_sequences=[w],
            n_steps=n,
        )
        results += [same[-1], ys[-1]]
    return graph_of(*results)


def constant_loops_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, loops over constants, each of which is another."""
    results = []
    for start in range(max(nodes // _NODES_A_GRADIENT, 1)):
        ys = scan(
            lambda y: pt.exp(-y),
            outputs_info=[pt.constant(float(start + 1), dtype="float64")],
            n_steps=5,
        )
        results.append(ys[-1] * pt.dscalar("x"))
    return graph_of(*results)


def unread_taps_graph(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes, loops with taps that no step reads."""
    results = []
    for _ in range(max(nodes // _NODES_A_GRADIENT, 1)):
        start, n = pt.dvector("start"), pt.lscalar("n")
        state = {"initial": start, "taps": [-3, -2, -1]}
        ys = scan(lambda y3, y2, y1: pt.sin(y2), outputs_info=[state], n_steps=n)
        results.append(ys[-1])
    return graph_of(*results)
