"""inline-constants: sequences with equal rows, in every form, and a twin for each precondition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop import TracedLoop
from scanopt_cli.loop.body import Body
from support.compiled_ways import EVERY_WAY, NUMBA, VM, assert_right
from support.graph_building import (
    assert_same_values,
    graph_of,
    only_scan,
    optimized,
    outputs_of,
    scan,
)

N, K = pt.lscalar("n"), pt.lscalar("k")
X, Y = pt.dscalar("x"), pt.dscalar("y")
V = pt.dvector("v", shape=(3,))
S = pt.dvector("s")
START = pt.dvector("start", shape=(3,))
LARGE = pt.constant(np.tile(np.arange(5000.0), (4, 1)))
VALUES = {
    "x": 1.3,
    "y": 0.7,
    "k": 2,
    "v": np.array([0.5, -1.0, 2.0]),
    "start": np.array([0.1, 0.2, 0.3]),
    "s": np.arange(4.0),
}


def _filled(value: Any, rows: Any = N) -> Any:
    return pt.alloc(value, rows)


NUMBERS: dict[str, Callable[[], Any]] = {
    "full": lambda: pt.full((N,), X),
    "one entry, written everywhere": lambda: pt.set_subtensor(pt.zeros(N)[:], pt.expand_dims(X, 0)),
    "repeat of a number": lambda: pt.repeat(X, N),
    "a slice": lambda: _filled(X, N + 2)[1:],
    "a stride": lambda: _filled(X, 2 * N)[: 2 * N][::-1],
    "every other one": lambda: _filled(X, 2 * N)[::2],
    "every third one, backwards": lambda: _filled(X, 3 * N + 1)[::-3],
    "rolled": lambda: pt.roll(_filled(X), 1),
    "taken out of a matrix": lambda: pt.alloc(X, N, 4)[:, 2],
    "an elementwise operation of two": lambda: _filled(X) * pt.exp(_filled(Y)),
    "an elementwise operation of one and a number": lambda: _filled(X) * Y + 1,
    "a switch": lambda: pt.switch(_filled(X) > 1, _filled(Y), X),
    "a join of the same": lambda: pt.concatenate([_filled(X, S.shape[0]), _filled(X)])[:N],
    "a join of computed ones": lambda: pt.concatenate([_filled(X) + 1, _filled(X + 1, 3)]),
    "a buffer that is written": lambda: pt.set_subtensor(pt.zeros(N)[:], X),
    "a check": lambda: Assert("positive")(_filled(X), X > 0),
    "a declared shape": lambda: pt.specify_shape(_filled(X), (N,)),
    "a cast": lambda: _filled(X > 0).astype("float64"),
}
ROWS: dict[str, Callable[[], Any]] = {
    "broadcast_to": lambda: pt.broadcast_to(V, (N, 3)),
    "broadcast_to of a row": lambda: pt.broadcast_to(V[None], (N, 3)),
    "repeat of a row": lambda: pt.repeat(V[None], N, axis=0),
    "tile": lambda: pt.tile(V, (N, 1)),
    "every other row": lambda: pt.alloc(V, 2 * N, 3)[::2],
    "rolled rows": lambda: pt.roll(pt.alloc(V, N, 3), 1, axis=0),
    "a buffer that a row of unknown length is written into": lambda: pt.set_subtensor(
        pt.zeros((N, 3))[:], V[: K + 1]
    ),
    "moved axes": lambda: pt.alloc(V[:, None], 3, N).T,
    "a matrix that is turned twice": lambda: pt.alloc(V, N, 3).T[::-1].T,
    "parts of rows": lambda: pt.alloc(pt.concatenate([V, V]), N, 6)[:, 1:4],
    "a join of parts of rows": lambda: pt.concatenate(
        [pt.alloc(V, N, 3)[:, :1], pt.alloc(X, N, 2)], axis=1
    ),
    "a join along the rows": lambda: pt.concatenate(
        [pt.alloc(V, N, 3), pt.alloc(V, S.shape[0], 3)]
    )[:N],
    "an operation with a row": lambda: pt.alloc(X, N, 1) * V,
    "an added axis": lambda: _filled(X)[:, None] + pt.alloc(V, N, 3),
    "a reshape": lambda: pt.alloc(V, N, 3).reshape((N, 1, 3))[:, 0],
}
BOTH = {**NUMBERS, **ROWS}


def _over(sequence: Any, n_steps: Any = N, start: Any = None) -> Any:
    first = (START if sequence.ndim > 1 else X) if start is None else start
    return scan(
        lambda a, y: pt.tanh(y) * a + 0.5,
        sequences=[sequence],
        outputs_info=[first],
        n_steps=n_steps,
    )


def _is_uniform(graph: Graph) -> bool:
    """Whether no step reads a row of an array."""
    loops = [node for node in graph.fgraph.apply_nodes if isinstance(node.op, TracedLoop)]
    if not loops:
        return not only_scan(graph.fgraph).of_kind(SlotKind.SEQ)
    (node,) = loops
    states = node.op.n_states
    width = node.op.state_types[0].ndim
    return all(v.type.ndim <= width for v in node.op.fgraph.inputs[1 + states :])


FORMS = pytest.mark.parametrize("form", ["", "scan-to-loop,"], ids=["scan", "loop"])


@FORMS
@pytest.mark.parametrize("name", BOTH)
def test_cases_3_to_7(name: str, form: str) -> None:
    graph = graph_of(_over(BOTH[name]()))
    after, _ = optimized(graph, f"{form}inline-constants,remove-unused")
    assert _is_uniform(after)
    for n in (0, 1, 2, 5):
        assert_same_values(graph, after, n=n, **VALUES)


@pytest.mark.tiered(every=5)
@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("preset", ["default", "grad", "loop"])
def test_presets(name: str, preset: str) -> None:
    graph = graph_of(_over(BOTH[name]()))
    after = so.optimize(graph, preset).graph
    assert _is_uniform(after)
    assert_same_values(graph, after, n=4, **VALUES)


@pytest.mark.tiered(every=5)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", BOTH)
def test_derivatives(name: str, order: int) -> None:
    """By the value that is repeated, before and behind the pass."""
    by = X if name in NUMBERS else V
    graph = graph_of(_over(BOTH[name](), start=pt.zeros(()) if by is X else pt.zeros(3)))
    after, _ = optimized(graph, "inline-constants")
    found = []
    for one in (graph, after):
        cost: Any = (one.outputs[0] ** 2).sum()
        source = next(v for v in one.inputs if v.name == by.name)
        for _ in range(order):
            cost = pytensor.grad(cost, source, disconnected_inputs="ignore").sum()
        found.append(graph_of(cost, one.outputs[0].sum()))
    needed = {v.name for one in found for v in one.inputs}
    values = {name: value for name, value in VALUES.items() if name in needed}
    for one in found[1:]:
        for n in (2, 5):
            expected, got = outputs_of(found[0], n=n, **values), outputs_of(one, n=n, **values)
            np.testing.assert_allclose(got[0], expected[0], rtol=1e-9)


@pytest.mark.tiered(every=12)
@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("way", ["optimize -p default", "enabled('grad')", "enabled('loop')"])
def test_compiled(name: str, way: str) -> None:
    ys = _over(BOTH[name]())
    gradient = pytensor.grad(ys.sum(), X if name in NUMBERS else START)
    graph = graph_of(ys, gradient)
    values = [
        [
            np.asarray(n if v.name == "n" else VALUES[str(v.name)], v.type.dtype)
            for v in graph.inputs
        ]
        for n in (2, 5)
    ]
    mode = NUMBA if "loop" in way else VM
    assert_right(graph.inputs, graph.outputs, values, EVERY_WAY[way], mode)


@pytest.mark.parametrize("taps", [[0, 1], [-1, 0, 2]])
@FORMS
def test_several_taps_of_one_sequence(taps: list[int], form: str) -> None:
    ys = scan(
        lambda *rows: rows[-1] * 0.5 + sum(rows[:-1]),
        sequences=[{"input": _filled(X, N + 4), "taps": taps}],
        outputs_info=[Y],
        n_steps=N,
    )
    graph = graph_of(ys)
    after, _ = optimized(graph, f"{form}inline-constants,remove-unused")
    assert _is_uniform(after)
    for n in (0, 1, 4):
        assert_same_values(graph, after, n=n, **VALUES)


@pytest.mark.parametrize("name", ["full", "repeat of a number", "broadcast_to", "repeat of a row"])
def test_as_many_steps_as_rows(name: str) -> None:
    graph = graph_of(_over(BOTH[name](), None))
    after, _ = optimized(graph, "inline-constants")
    assert _is_uniform(after)
    for n in (0, 1, 4):
        assert_same_values(graph, after, n=n, **VALUES)


def test_case_5_fill_of_an_array_with_other_rows() -> None:
    graph = graph_of(_over(pt.ones_like(S) * X, None))
    after, _ = optimized(graph, "inline-constants")
    assert _is_uniform(after)
    for rows in (0, 1, 4):
        assert_same_values(graph, after, n=4, **{**VALUES, "s": np.arange(float(rows))})


def test_case_3_vector_of_one_value() -> None:
    graph = graph_of(_over(pt.stack([X + Y, X + Y, X + Y]), 3))
    after, _ = optimized(graph, "inline-constants")
    assert _is_uniform(after)
    assert_same_values(graph, after, **VALUES)


@FORMS
def test_case_2_large_rows_become_a_non_sequence(form: str) -> None:
    ys = scan(lambda a, y: y + a.sum(), sequences=[LARGE], outputs_info=[X], n_steps=4)
    graph = graph_of(ys)
    after, _ = optimized(graph, f"{form}inline-constants,remove-unused")
    if form:
        (node,) = (n for n in after.fgraph.apply_nodes if isinstance(n.op, TracedLoop))
        assert [v.type.ndim for v in node.op.fgraph.inputs[2:]] == [1]
    else:
        assert _is_uniform(after)
    assert_same_values(graph, after, **VALUES)


def test_case_4_entries_of_rows() -> None:
    ys = scan(
        lambda a, y: y * a[0] + a[2], sequences=[pt.alloc(V, N, 3)], outputs_info=[X], n_steps=N
    )
    graph, _ = optimized(graph_of(ys), "scan-to-loop,simplify")
    after, _ = optimized(graph, "inline-constants,remove-unused")
    (node,) = (n for n in after.fgraph.apply_nodes if isinstance(n.op, TracedLoop))
    assert all(v.type.ndim < 2 for v in node.op.fgraph.inputs)
    for n in (0, 1, 4):
        assert_same_values(graph, after, n=n, **VALUES)


def test_case_4_rows_along_another_axis() -> None:
    matrix, inner, y = pt.alloc(V[:, None], 3, N), pt.dmatrix(shape=(3, None)), START.type()
    index = pt.lscalar()
    body = Body(index=index, states=[y], constants=[inner], next_states=[y * inner[:, index]])
    graph = graph_of(*TracedLoop.over(N, body, [START], {inner: matrix})[:2])
    after, _ = optimized(graph, "inline-constants,remove-unused")
    (node,) = (n for n in after.fgraph.apply_nodes if isinstance(n.op, TracedLoop))
    assert all(v.type.ndim < 2 for v in node.op.fgraph.inputs)
    for n in (0, 1, 4):
        assert_same_values(graph, after, n=n, **VALUES)


def test_in_the_body_of_a_loop() -> None:
    def outer(y: Any) -> Any:
        return _over(pt.repeat(y, 3), 3, start=y)[-1]

    graph = graph_of(scan(outer, outputs_info=[X], n_steps=N))
    after, remarks = optimized(graph, "inline-constants")
    assert any("turned uniform seq" in remark for remark in remarks)
    for n in (0, 1, 4):
        assert_same_values(graph, after, n=n, **VALUES)


TWINS: dict[str, Callable[[], Any]] = {
    "an array": lambda: S,
    "a join of two values": lambda: pt.concatenate([_filled(X), _filled(Y)]),
    "a join of a value and an array": lambda: pt.concatenate([_filled(X), S]),
    "an operation with an array": lambda: _filled(X) * S[:N],
    "a fill with an array": lambda: pt.second(_filled(X), S[:N]),
    "a vector of two values": lambda: pt.stack([X, X, Y, X])[:N],
    "a repeat of two rows": lambda: pt.repeat(S[:2], N),
    "a buffer of which one row is written": lambda: pt.set_subtensor(pt.zeros(N)[0], X),
    "constants that differ": lambda: pt.constant(np.array([1.0, 1.0, 2.0, 1.0])),
    "signs of zero": lambda: pt.constant(np.array([0.0, -0.0, 0.0, 0.0])),
    "negative zeros": lambda: pt.constant(np.full(4, -0.0)),
    "a gathered array": lambda: _filled(X)[pt.cast(S, "int64")],
}


@FORMS
@pytest.mark.parametrize("name", TWINS)
def test_twins_of_rows(name: str, form: str) -> None:
    sequence = TWINS[name]()
    steps = 4 if sequence.type.shape == (4,) else N
    graph = graph_of(_over(sequence, steps))
    after, _ = optimized(graph, f"{form}inline-constants,remove-unused")
    assert not _is_uniform(after)
    for n in (1, 4):
        assert_same_values(graph, after, n=n, **VALUES)


SHORT: dict[str, Callable[[], Any]] = {
    "fewer rows": lambda: _filled(X, K),
    "a slice with fewer rows": lambda: _filled(X)[1:],
    "a stride": lambda: _filled(X)[::2],
    "every third of twice as many": lambda: _filled(X, 2 * N)[::3],
    "parts at two places": lambda: pt.concatenate([_filled(X)[K:], _filled(X)[: K - 1]]),
    "a sum of unequal lengths": lambda: _filled(X) + _filled(Y, K),
    "a fill of another length": lambda: pt.ones_like(S) * X,
    "a join of unequal lengths": lambda: pt.join(1, pt.alloc(X, N, 1), pt.alloc(Y, K, 1)).sum(
        axis=1
    ),
    "a declared shape that may differ": lambda: pt.specify_shape(_filled(X), (K,)),
    "a constant": lambda: pt.constant(np.full(3, 2.0)),
    "a part of less than no rows": lambda: pt.concatenate([_filled(X, N + 2), _filled(X, K - 4)]),
}


@FORMS
@pytest.mark.parametrize("name", SHORT)
def test_twins_of_lengths(name: str, form: str) -> None:
    """A loop whose sequence may be too short raises as before."""
    graph, _ = optimized(graph_of(_over(SHORT[name]())), f"{form}remove-unused")
    after, _ = optimized(graph, "inline-constants,remove-unused")
    assert not _is_uniform(after)
    for n in (1, 2, 4):
        assert_same_values(graph, after, n=n, **VALUES)


def test_twin_of_a_length_says_so() -> None:
    _, remarks = optimized(graph_of(_over(_filled(X, K))), "inline-constants")
    assert remarks == [
        "missed scan_fn: keeps seq `seq[0]` as an input: a sequence is not proved to be as long as "
        "the loop has steps"
    ]


def _division(n_steps: Any) -> Any:
    quotient = _filled(pt.lscalar("k"), n_steps) // _filled(pt.lscalar("k") - 2, n_steps)
    return graph_of(_over(quotient.astype("float64"), n_steps))


@pytest.mark.parametrize("form", ["", "scan-to-loop,"])
def test_case_7_twin_entries_that_may_be_several(form: str) -> None:
    """What is written everywhere is one entry, or as many as there are rows."""
    written = pt.set_subtensor(pt.zeros(N)[:], S)
    states = scan(lambda a, y: pt.tanh(a * y), sequences=[written], outputs_info=[X])
    graph = graph_of(states)
    work, remarks = optimized(graph, f"{form}inline-constants")
    assert any(r.endswith("as an input: a length is not known") for r in remarks)
    for entries in (np.arange(4.0), np.ones(1)):
        assert_same_values(graph, work, x=0.7, n=4, s=entries)


def test_case_5_what_may_raise_if_there_is_a_step() -> None:
    after, _ = optimized(_division(4), "inline-constants")
    assert _is_uniform(after)


def test_case_5_twin_what_may_raise() -> None:
    """Of no rows there is nothing to divide."""
    after, _ = optimized(_division(N), "inline-constants")
    assert not _is_uniform(after)


def test_a_shared_chain_takes_no_time() -> None:
    """What reads one array twice, again and again, is looked at once."""
    sequence = _filled(X)
    for _ in range(30):
        sequence = sequence + sequence
    after, _ = optimized(graph_of(_over(sequence)), "inline-constants")
    assert _is_uniform(after)


@pytest.mark.parametrize("dtype", ["int64", "int8", "float32", "float64", "bool"])
def test_case_2_dtypes(dtype: str) -> None:
    """A row that is a number keeps the dtype of the array."""
    graph = graph_of(_over(pt.constant(np.ones(4, dtype)), 4))
    after, _ = optimized(graph, "inline-constants")
    assert _is_uniform(after)
    assert_same_values(graph, after, **VALUES)
