"""`unroll-small`: what is large, or may be, stays an array."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.tensor import linalg

from scanopt_cli.errors import PassError
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Body, Loop, TracedLoop
from scanopt_cli.pipeline.grammar import parse
from support.graph_building import assert_same_values, graph_of, scan
from support.unrolling import VALUES, h, unknown, unrolled, wide


def test_large_arrays_of_small_ones_stay() -> None:
    """A kernel of 16 points has 256 entries; the equations that it solves stay as well."""
    points = pt.dvector("points", shape=(16,))

    def step(x: Any) -> Any:
        kernel = pt.exp(-400 * (x[:, None] - x[None, :]) ** 2)
        return linalg.solve(kernel, x, b_ndim=1) * 0.01 + x

    graph = graph_of(scan(step, outputs_info=[points], n_steps=2))
    work, _ = unrolled(graph)
    (op,) = (node.op for node in walk(work.fgraph) if isinstance(node.op, TracedLoop))
    assert len(op.fgraph.apply_nodes) < 200
    assert_same_values(graph, work, points=np.linspace(0.1, 1, 16))


def test_loops_of_constants_are_not_run() -> None:
    """The pass computes constants of arithmetic only: this loop would not end."""

    def step(y: Any) -> Any:
        index, state = pt.lscalar(), pt.dscalar()
        body = Body(index=index, states=[state], next_states=[state * 0.5 + 1])
        (last,) = Loop.over(10**12, body, [pt.constant(1.0, dtype="float64")], {})
        return pt.tanh(y) * last

    graph = graph_of(scan(step, outputs_info=[h], n_steps=2))
    work, _ = unrolled(graph)
    assert any(isinstance(node.op, Loop) for node in walk(work.fgraph))


@pytest.mark.parametrize("size", [16, 64])
def test_products_of_products_end(size: int) -> None:
    """Each outer product has as many entries as its factors have pairs."""

    def step(y: Any) -> Any:
        pairs = pt.outer(y, y).ravel()
        return pt.outer(pairs, pairs)[:3, 0] * 0.1 + y

    graph = graph_of(scan(step, outputs_info=[h], n_steps=2))
    work, _ = unrolled(graph, f"{{size={size}}}")
    assert_same_values(graph, work, **VALUES)


@pytest.mark.parametrize("options", ["{size=2}", ""])
def test_larger_arrays_stay(options: str) -> None:
    state = h if options else wide
    graph = graph_of(scan(lambda y: pt.tanh(y) * 2, outputs_info=[state], n_steps=3))
    _, remarks = unrolled(graph, options)
    assert remarks == ["passed scan_fn: became a TracedLoop"]


def test_arrays_of_unknown_length_stay() -> None:
    graph = graph_of(scan(lambda y: pt.tanh(y) * 2, outputs_info=[unknown], n_steps=3))
    _, remarks = unrolled(graph)
    assert remarks[1:] == ["missed scan_fn: computes `unknown` as an array: its shape is not known"]


def test_a_length_is_blamed_only_if_knowing_it_would_help() -> None:
    """Nothing sorts entry by entry, so rows of a known length stay arrays of traces of any."""
    trace = scan(lambda y: pt.tanh(y), outputs_info=[h], n_steps=3)
    step = lambda row, y: y * pt.sort(row)  # noqa: E731
    of_rows = graph_of(scan(step, sequences=[trace[::-1]], outputs_info=[h]))
    of_all = graph_of(scan(lambda y: pt.sort(y), outputs_info=[unknown], n_steps=3))
    for graph in (of_rows, of_all):
        _, remarks = unrolled(graph)
        assert not any("its shape is not known" in remark for remark in remarks)


@pytest.mark.parametrize("other", [pt.dvector("other"), pt.dvector("other")[::-1]])
def test_constants_of_unknown_length_are_blamed_with_others_of_a_known_one(other: Any) -> None:
    ys = scan(lambda y, c: y * c, outputs_info=[h], non_sequences=[other], n_steps=3)
    _, remarks = unrolled(graph_of(ys))
    assert any(remark.endswith("as an array: its shape is not known") for remark in remarks)


def test_rows_of_unknown_length_stay() -> None:
    ys = scan(lambda row, y: y * 0.5 + row[0], sequences=[pt.dmatrix("a")], outputs_info=[h])
    graph = graph_of(ys)
    assert_same_values(graph, unrolled(graph)[0], **VALUES)


def test_a_graph_of_large_arrays_inside_an_op_stays() -> None:
    """Nothing of it counts as unrolled, or the pass would go on for ever."""
    given, x = pt.dvector("given", shape=(8,)), pt.dvector("x", shape=(8,))
    outer = OpFromGraph([x], [pt.outer(x + 1, x)])
    ys = scan(lambda y: pt.tanh(outer(y).sum(axis=0)), outputs_info=[given], n_steps=2)
    graph = graph_of(ys)
    work, _ = unrolled(graph)
    assert any(isinstance(node.op, OpFromGraph) for node in walk(work.fgraph))
    assert_same_values(graph, work, given=np.linspace(-1, 1, 8))


def test_a_graph_inside_an_op_that_makes_large_arrays_of_what_is_small() -> None:
    """That they are large is known only when the graph inside is computed."""
    given, x = pt.dvector("given", shape=(8,)), pt.dvector("x")
    outer = OpFromGraph([x], [pt.outer(x + 1, x)])
    ys = scan(lambda y: pt.tanh(outer(y).sum(axis=0)), outputs_info=[given], n_steps=2)
    graph = graph_of(ys)
    work, _ = unrolled(graph)
    assert_same_values(graph, work, given=np.linspace(-1, 1, 8))


def test_constants_that_are_large_are_not_made_entry_by_entry() -> None:
    """The pass would take minutes for the entries of these, before it finds that they are many."""

    def step(y: Any) -> Any:
        ones, places = pt.eye(3000, 2000), pt.constant(np.zeros(3_000_000, dtype="int64"))
        counted = pt.arange(y.shape[0] * 200_000)  # of a length that its type does not say
        return y + ones[2, 1] + pt.arange(3_000_000)[2] + y[places][0] + counted[2]

    graph = graph_of(scan(step, outputs_info=[h], n_steps=2))
    start = perf_counter()
    unrolled(graph)
    assert perf_counter() - start < 20


def test_steps_that_would_be_too_large_stay() -> None:
    def step(y: Any) -> Any:
        for _ in range(700):
            y = pt.sin(y)
        return y

    graph = graph_of(scan(step, outputs_info=[h], n_steps=3))
    _, remarks = unrolled(graph)
    assert remarks[1:] == ["missed scan_fn: a step would compute more than 2000 entries"]


def test_a_size_that_is_too_large() -> None:
    with pytest.raises(PassError, match="size"):
        parse("unroll-small{size=65}")
