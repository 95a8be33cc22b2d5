"""`push-out-products`: rows of a sequence are multiplied by a matrix before the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.op import Scan
from pytensor.scan.utils import until
from pytensor.tensor.math import Dot

from scanopt_cli.ir.graph import Graph
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import arguments, graph_of, optimized, scan, scan_views

RUN = "push-out-products,remove-unused"
xs = pt.dmatrix("xs")
w, v, u = pt.dmatrix("w"), pt.dmatrix("v"), pt.dmatrix("u")
h = pt.dvector("h")
n = pt.lscalar("n")
_rng = np.random.default_rng(2)
POINT = {
    "xs": _rng.normal(size=(4, 3)),
    "w": _rng.normal(size=(3, 2)),
    "v": _rng.normal(size=(2, 3)),
    "u": _rng.normal(size=(2, 2)),
    "h": np.array([0.3, -0.2]),
    "n": 4,
}
MOVED = "multiplies all rows of `xs` by a matrix before the loop"


def loop(step: Callable[..., Any], **more: Any) -> Any:
    """A loop over the rows of ``xs``, with a vector as its state."""
    given = {"sequences": [xs], "outputs_info": [h], "non_sequences": [w, v, u], **more}
    return scan(step, **given)


def check(*outputs: Variable, rtol: float = 1e-9, **changes: Any) -> tuple[Graph, list[str]]:
    """Run the pass and compare values; return the result and the remarks."""
    graph = graph_of(*outputs)
    work, remarks = optimized(graph, RUN)
    data = arguments(graph, **{**POINT, **changes})
    assert_same_outcomes(
        evaluate(graph.inputs, graph.outputs, data),
        evaluate(work.inputs, work.outputs, data),
        rtol=rtol,
    )
    return work, [r.partition(": ")[2] for r in remarks if "removed" not in r]


def products(graph: Graph) -> int:
    """Count the products in the bodies."""
    return sum(
        isinstance(getattr(node.op, "core_op", node.op), Dot)
        for view in scan_views(graph.fgraph)
        for node in view.op.fgraph.toposort()
    )


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "1: a row by a matrix": (lambda x, h, w, v, u: pt.tanh(x @ w + h), 0),
    "1: by a transposed matrix": (lambda x, h, w, v, u: pt.tanh(x @ v.T + h), 0),
    "2: a matrix by a column": (lambda x, h, w, v, u: pt.tanh(v @ x + h), 0),
    "2: a transposed matrix by a column": (lambda x, h, w, v, u: pt.tanh(w.T @ x + h), 0),
    "both, and the product of a state": (lambda x, h, w, v, u: pt.tanh(x @ w + v @ x + u @ h), 1),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_cases(name: str, steps: int) -> None:
    step, left = CASES[name]
    work, remarks = check(loop(step), xs=POINT["xs"][:steps])
    assert set(remarks) == {MOVED}
    assert products(work) == left


def test_a_row_that_is_read_otherwise_too() -> None:
    work, remarks = check(loop(lambda x, h, w, v, u: pt.tanh(x @ w + h) * x.sum()))
    assert remarks == [MOVED]
    (view,) = scan_views(work.fgraph)
    assert len(view.of_kind("seq")) == 2


@pytest.mark.parametrize("steps", [0, 3, 4])
def test_fewer_steps_than_rows(steps: int) -> None:
    ys = loop(lambda x, h, w, v, u: pt.tanh(x @ w + h), n_steps=n)
    _, remarks = check(ys, n=steps)
    assert remarks == [MOVED]


def test_other_rows_than_the_first() -> None:
    sequences = [{"input": xs, "taps": [-1, 1]}]
    ys = loop(lambda a, b, h, w, v, u: pt.tanh(a @ w - v @ b + h), sequences=sequences)
    _, remarks = check(ys)
    assert len(remarks) == 2


def test_single_precision() -> None:
    x32, w32 = pt.fmatrix("xs"), pt.fmatrix("w")
    ys = scan(
        lambda x, h, w: pt.tanh(x @ w + h),
        sequences=[x32],
        outputs_info=[pt.fvector("h")],
        non_sequences=[w32],
    )
    single = {name: POINT[name].astype("float32") for name in ("xs", "w", "h")}
    # BLAS adds up a product of one row in another order, on some processors.
    _, remarks = check(ys, rtol=1e-5, **single)
    assert remarks == [MOVED]


def test_gradients() -> None:
    """Of the weights, too; what the backward loop computes again stays in it."""
    ys = loop(lambda x, h, w, v, u: pt.tanh(x @ w + u @ h))
    slopes = pytensor.grad((ys**2).sum(), [xs, w, u, h])
    work, remarks = check((ys**2).sum(), *slopes)
    assert MOVED in remarks
    assert products(work) < products(graph_of(*slopes))


BACKWARDS = "a trace read backwards"
LEFT: dict[str, Callable[[], Any]] = {
    "a matrix that changes": lambda: scan(
        lambda x, m: m * pt.tanh(x @ m), sequences=[xs], outputs_info=[w]
    ),
    "two rows": lambda: loop(lambda x, h, w, v, u: h * pt.dot(x, x)),
    "a matrix of one column": lambda: scan(
        lambda x, h, w: pt.tanh(x @ w + h),
        sequences=[xs],
        outputs_info=[h[:1]],
        non_sequences=[pt.tensor("w", dtype="float64", shape=(None, 1))],
    ),
    "integers": lambda: scan(
        lambda x, k, w: k + x @ w,
        sequences=[pt.lmatrix("xs")],
        outputs_info=[pt.lvector("h")],
        non_sequences=[pt.lmatrix("w")],
    ),
    BACKWARDS: lambda: scan(
        lambda y, k, u: pt.tanh(y @ u + k),
        sequences=[loop(lambda x, h, w, v, u: pt.tanh(h + x[:2]))[::-1]],
        outputs_info=[h],
        non_sequences=[u],
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(name: str) -> None:
    changes: dict[str, Any] = {}
    if "column" in name:
        changes = {"w": POINT["w"][:, :1]}
    elif name == "integers":
        changes = {
            k: np.arange(v.size).reshape(v.shape) for k, v in POINT.items() if k in ("xs", "w", "h")
        }
    elif "changes" in name:
        changes = {"w": np.ones((3, 3)) / 5}
    work, remarks = check(LEFT[name](), **changes)
    assert remarks == []
    assert products(work) == 1


def test_a_trace_that_is_read_forwards() -> None:
    """The second layer of a network."""
    below = loop(lambda x, h, w, v, u: pt.tanh(h + x[:2]))
    ys = scan(
        lambda y, k, u: pt.tanh(y @ u + k), sequences=[below], outputs_info=[h], non_sequences=[u]
    )
    work, remarks = check(ys)
    assert len(remarks) == 1
    assert products(work) == 0


@pytest.mark.parametrize("sequence", [xs[::-1], pt.exp(xs)[::-1]])
def test_what_is_no_trace_may_be_read_backwards(sequence: Any) -> None:
    ys = loop(lambda x, h, w, v, u: pt.tanh(x @ w + h), sequences=[sequence])
    work, remarks = check(ys)
    assert len(remarks) == 1
    assert products(work) == 0


def test_a_loop_that_may_stop() -> None:
    ys = loop(lambda x, h, w, v, u: (pt.tanh(x @ w + h), until(h[0] > 0.5)))
    work, remarks = check(ys)
    assert remarks == ["keeps the product of a row of `xs` in the loop: the loop may stop early"]
    assert products(work) == 1


def test_a_batch_of_loops() -> None:
    ys = loop(lambda x, h, w, v, u: pt.tanh(x @ w + h))
    batch = pt.dmatrix("batch")
    node = next(v for v in ys.owner.inputs if v.owner and isinstance(v.owner.op, Scan))
    (many,) = vectorize_graph([node], {h: batch})
    work, remarks = optimized(graph_of(many), RUN)
    assert [r for r in remarks if "multiplies" in r] == []
    assert products(work) == 1


def test_once_is_enough() -> None:
    work, _ = optimized(graph_of(loop(CASES["1: a row by a matrix"][0])), RUN)
    _, remarks = optimized(work, RUN)
    assert remarks == []


def test_presets_multiply_before_the_loop() -> None:
    for preset in ("grad", "loop"):
        work, remarks = optimized(graph_of(loop(CASES["1: a row by a matrix"][0])), preset)
        assert any(MOVED in remark for remark in remarks)
        data = arguments(graph_of(*work.outputs), **POINT)
        evaluate(work.inputs, work.outputs, data)


@given(st.integers(0, 5), st.integers(0, 3), st.integers(0, 4), st.booleans())
def test_any_lengths(steps: int, width: int, made: int, is_column: bool) -> None:
    """Of no rows or no columns, too."""
    rng = np.random.default_rng(steps)
    values = {
        "xs": rng.normal(size=(steps, width)),
        "w": rng.normal(size=(width, made)),
        "v": rng.normal(size=(made, width)),
        "h": rng.normal(size=made),
    }
    ys = loop(lambda x, h, w, v, u: pt.tanh((v @ x if is_column else x @ w) + h))
    check(ys, **values)
