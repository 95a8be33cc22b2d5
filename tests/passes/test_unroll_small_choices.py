"""`unroll-small`, case 7: entries that are read and written at indices which vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.shape import Reshape

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import TracedLoop
from support.graph_building import assert_same_values, graph_of, scan
from support.unrolling import unrolled

i, j = pt.lvector("i"), pt.lvector("j")
r = pt.dvector("r")
q = pt.tensor("q", dtype="float64", shape=(4,))
m = pt.tensor("m", dtype="float64", shape=(3, 2))
GIVEN = {
    "i": np.array([0, 2, -1, 1, -3, 0]),
    "j": np.array([1, 1, 0, -2, 1, -1]),
    "r": np.array([0.3, -1.0, 0.5, 2.0, -0.7, 0.1]),
    "q": np.array([0.1, -0.4, 0.8, 0.2]),
    "m": np.array([[0.5, -1.0], [0.2, 0.7], [-0.3, 0.4]]),
}

# What a step makes of indices ``i`` and ``j``, a number, and a vector or a matrix.
OF_VECTORS: dict[str, Callable[..., Any]] = {
    "reads and sets": lambda i, j, r, q: q[i].set(q[i] + 0.3 * (r - q[i])),
    "adds": lambda i, j, r, q: q[i].inc(r) * 0.9,
    "two places": lambda i, j, r, q: q[i].inc(r)[j].inc(-r) * 0.9,
    "a vector of indices": lambda i, j, r, q: q * 0.5 + q[pt.stack([i, j, i, j])],
    "adds at a vector of indices": lambda i, j, r, q: pt.inc_subtensor(q[pt.stack([i, i, j])], r),
    "sets at a vector of indices": lambda i, j, r, q: pt.set_subtensor(
        q[pt.stack([i, j, i])], pt.stack([r, r + 1, r + 2])
    ),
    "an index that is computed": lambda i, j, r, q: q[pt.argmax(q[:3]) + 1].inc(-r),
    "a small integer": lambda i, j, r, q: q[pt.cast(i, "int8")].inc(r),
    "one that is known": lambda i, j, r, q: q[1].set(q[i]),
}
OF_MATRICES: dict[str, Callable[..., Any]] = {
    "an entry": lambda i, j, r, m: m[i, j].inc(r) * 0.9,
    "a row": lambda i, j, r, m: m[i].set(m[i] * 0.5 + r),
    "a column": lambda i, j, r, m: m[:, j].inc(r) + m[:, j].sum(),
    "part of a column": lambda i, j, r, m: m[1:, j].inc(r),
    "an entry of each row": lambda i, j, r, m: pt.inc_subtensor(
        m[np.arange(3), pt.stack([j, j, -1 - j % 2])], r
    ),
    "rows by a vector": lambda i, j, r, m: m * 0.5 + m[pt.stack([i, i, i])],
}


def loop_of(step: Callable[..., Any], state: Any) -> Any:
    return scan(lambda *given: step(*given), sequences=[i, j, r], outputs_info=[state])


def is_of_numbers(graph: Graph) -> bool:
    """Whether a step computes no arrays, other than for traces."""
    (op,) = (node.op for node in walk(graph.fgraph) if isinstance(node.op, TracedLoop))
    return not any(
        getattr(v.type, "ndim", 0)
        for node in op.fgraph.apply_nodes
        if not isinstance(node.op, MakeVector | Reshape)
        for v in node.outputs
    )


def gradients(trace: Any, *wrt: Any) -> Graph:
    cost = (trace**2).sum()
    inputs = [i, j, r, q, m]
    return from_io(inputs, [trace, *pt.grad(cost, list(wrt), disconnected_inputs="ignore")])


CASES = {
    **{name: (step, q) for name, step in OF_VECTORS.items()},
    **{f"of a matrix, {name}": (step, m) for name, step in OF_MATRICES.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_case_7(name: str) -> None:
    step, state = CASES[name]
    graph = graph_of(loop_of(step, state))
    work, _ = unrolled(graph)
    assert_same_values(graph, work, **GIVEN)
    assert is_of_numbers(work)


@pytest.mark.tiered(every=20)
@pytest.mark.parametrize("name", CASES)
def test_gradients_compiled(name: str) -> None:
    step, state = CASES[name]
    graph = gradients(loop_of(step, state), state, r)
    for mode in ("FAST_RUN", "NUMBA"):
        values = []
        for compiles in (lambda: graph, lambda: so.optimize(graph, "loop").graph):
            work = compiles()
            function = pytensor.function(
                list(work.inputs), list(work.outputs), mode=mode, on_unused_input="ignore"
            )
            values.append(function(*GIVEN.values()))
        for old, new in zip(*values, strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-12)


STAYS: dict[str, tuple[Callable[..., Any], Any]] = {
    "one entry, whose index no choice checks": (
        lambda i, j, r, q: q[i].inc(r),
        pt.tensor("one", dtype="float64", shape=(1,)),
    ),
    "entries chosen among many": (
        lambda i, j, r, q: q * 0.5 + q[pt.stack([i, j] * 5)],
        pt.tensor("ten", dtype="float64", shape=(10,)),
    ),
    "an index of 64 bits without a sign": (lambda i, j, r, q: q[pt.cast(i, "uint64")].inc(r), q),
    "a bound of a slice": (lambda i, j, r, q: q[: pt.abs(i) + 1].inc(r), q),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    step, state = STAYS[name]
    graph = graph_of(loop_of(step, state))
    work, _ = unrolled(graph)
    lengths = {"one": np.ones(1), "ten": np.linspace(-1, 1, 10)}
    values = {**GIVEN, **lengths, "i": np.zeros(6, dtype=int)}
    assert_same_values(graph, work, **values)
    assert not is_of_numbers(work)


@pytest.mark.parametrize("index", [4, -5, 2**40])
@pytest.mark.parametrize("name", ["reads and sets", "adds", "a vector of indices"])
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "FAST_RUN", "NUMBA"])
def test_an_index_that_is_not_there_is_an_error(name: str, index: int, mode: str) -> None:
    work, _ = unrolled(graph_of(loop_of(OF_VECTORS[name], q)[-1]))
    function = pytensor.function(
        list(work.inputs), list(work.outputs), mode=mode, on_unused_input="ignore"
    )
    values = {**GIVEN, "i": np.array([0, 1, 0, 1, index, 0])}
    names = [str(v.name) for v in work.inputs]
    with pytest.raises(IndexError):
        function(*(values[name] for name in names))


NOT_CHOSEN: dict[str, Callable[..., Any]] = {
    "nothing is written": lambda i, j, r, m: m[i, 5:].inc(r) * 0.9,
    "another column is read": lambda i, j, r, m: m[i, 0].set(r)[:, 1].sum() + m * 0.9,
}


@pytest.mark.parametrize("name", NOT_CHOSEN)
def test_an_index_is_checked_whatever_is_read(name: str) -> None:
    work, _ = unrolled(graph_of(loop_of(NOT_CHOSEN[name], m)[-1]))
    function = pytensor.function(
        list(work.inputs), list(work.outputs), mode="FAST_RUN", on_unused_input="ignore"
    )
    names = [str(v.name) for v in work.inputs]
    function(*(GIVEN[name] % 2 if name == "i" else GIVEN[name] for name in names))
    with pytest.raises(IndexError):
        function(*(GIVEN[name] + 3 if name == "i" else GIVEN[name] for name in names))


@given(data=st.data())
def test_generated_indices(data: st.DataObject) -> None:
    """Any place, read and written by scalars and vectors of indices, in vectors and matrices."""
    shape = data.draw(st.sampled_from([(2,), (5,), (2, 3), (3, 2, 2)]))
    state = pt.tensor("state", dtype="float64", shape=shape)
    n = data.draw(st.integers(1, 3))
    kinds = [data.draw(st.sampled_from(["scalar", "vector", "slice", "constant"])) for _ in shape]

    def index(kind: str, i: Any, length: int) -> Any:
        vector = pt.stack([(i + k) % length - k % 2 * length for k in range(n)])
        return {
            "scalar": i % length,
            "vector": vector,
            "slice": slice(None, None, -1),
            "constant": length - 1,
        }[kind]

    writes = data.draw(st.sampled_from(["set", "inc", "read"]))

    def step(i: Any, _j: Any, r: Any, state: Any) -> Any:
        at = tuple(index(kind, i, length) for kind, length in zip(kinds, shape, strict=True))
        part = state[at]
        if writes == "read":
            return state * 0.5 + r * part.sum() * 0.01  # which rounding errors do not outgrow
        new = part * 0.5 + r
        return part.set(new) if writes == "set" else part.inc(new * 0.3)

    graph = graph_of(loop_of(step, state))
    work, _ = unrolled(graph)
    values = {**GIVEN, "i": np.abs(GIVEN["i"]), "state": np.linspace(-1, 1, int(np.prod(shape)))}
    values["state"] = values["state"].reshape(shape)
    assert_same_values(graph, work, **values)
