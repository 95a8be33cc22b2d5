"""Loops are calls of ``pytensor.scan`` where they have its form, and written out where not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until
from pytensor.tensor.subtensor import Subtensor

import scanopt_cli as so
from scanopt_cli import loop
from support.graph_building import graph_of, scan
from support.python_scripts import assert_rebuilt

X, H, W = pt.dvector("x"), pt.dvector("h"), pt.dscalar("w")
N = pt.lscalar("n")
START = pt.dscalar("start")


def _calls(*outputs: Variable) -> tuple[int, int]:
    """Return how many loops of a script are calls, and how many are written out."""
    text = assert_rebuilt(graph_of(*outputs))
    return text.count("pytensor.scan("), text.count("= Scan(")


def _taps(*taps: int) -> Any:
    return {"input": X, "taps": [*taps]}


FORMS: dict[str, dict[str, Any]] = {
    "map": {"step": lambda x: x * 2, "sequences": [X]},
    "two sequences": {"step": lambda x, h: x * h, "sequences": [X, H]},
    "first rows": {"step": lambda x: x * 2, "sequences": [X], "n_steps": N},
    "number of steps": {"step": lambda s: s * 2, "outputs_info": [START], "n_steps": 5},
    "any steps": {"step": lambda s: s * 2, "outputs_info": [START], "n_steps": N},
    "backwards": {"step": lambda x, h: x * h, "sequences": [X, H], "go_backwards": True},
    "tap before": {"step": lambda a: a * 2, "sequences": [_taps(-1)]},
    "tap behind": {"step": lambda a: a * 2, "sequences": [_taps(2)]},
    "two taps": {"step": lambda a, b: a * b, "sequences": [_taps(-1, 0)]},
    "taps around": {"step": lambda a, b, c: a * b - c, "sequences": [_taps(1, -2, 0)]},
    "taps far": {"step": lambda a, b: a * b, "sequences": [_taps(-5, -2)]},
    "taps of two": {
        "step": lambda a, b, c, d: a * b - c * d,
        "sequences": [_taps(0, 1), {"input": H, "taps": [-1, 0]}],
    },
    "taps of a state": {
        "step": lambda a, b: a + 0.5 * b,
        "outputs_info": [{"initial": X[:3], "taps": [-3, -1]}],
        "n_steps": N,
    },
    "one tap far back": {
        "step": lambda a: a + 0.5,
        "outputs_info": [{"initial": X[:2], "taps": [-2]}],
        "n_steps": N,
    },
    "states and more": {
        "step": lambda x, s, t, w: [s + x * w, t * 2, s - t, x],
        "sequences": [X],
        "outputs_info": [START, START, None, None],
        "non_sequences": [W],
    },
    "truncated": {
        "step": lambda x, s: s + x,
        "sequences": [X],
        "outputs_info": [START],
        "truncate_gradient": 3,
    },
    "named": {"step": lambda x: x * 2, "sequences": [X], "name": "doubled"},
    "until": {
        "step": lambda s: ([s * 2, s + 1], until(s > 100)),
        "outputs_info": [START, None],
        "n_steps": N,
    },
    "until, of one": {
        "step": lambda s: (s * 2, until(s > 100)),
        "outputs_info": [START],
        "n_steps": N,
    },
    "reads what is outside": {"step": lambda x: x * W + X.sum(), "sequences": [X]},
    "argument returned": {
        "step": lambda x, s: [s, x],
        "sequences": [X],
        "outputs_info": [START, None],
    },
    "constant returned": {
        "step": lambda x: [x, pt.constant(1.5, dtype="float64")],
        "sequences": [X],
    },
    "vector state": {
        "step": lambda h: pt.tanh(h) * W,
        "outputs_info": [H],
        "n_steps": N,
    },
}


@pytest.mark.parametrize("name", FORMS)
def test_calls(name: str) -> None:
    made = scan(**FORMS[name])
    traces = made if isinstance(made, list) else [made]
    assert _calls(*traces) == (1, 0)
    assert _calls(*(trace[-1] for trace in traces)) == (1, 0)
    # The rows with the initial ones are read as well, by gradients.
    buffers = [t.owner.inputs[0] if isinstance(t.owner.op, Subtensor) else t for t in traces]
    assert _calls(*buffers) == (1, 0)


@pytest.mark.parametrize("name", [name for name in FORMS if name not in ("map", "truncated")])
def test_gradients(name: str) -> None:
    made = scan(**FORMS[name])
    trace = made[0] if isinstance(made, list) else made
    cost = trace[-1].sum() if trace.ndim > 1 else trace[-1]
    wrt = [v for v in (X, H, W, START) if v in graph_of(cost).inputs]
    gradients = pt.grad(cost, wrt, disconnected_inputs="ignore")
    assert _calls(cost, *gradients) == (1, 1)


def test_what_no_call_of_scan_makes_is_written_out() -> None:
    trace = scan(lambda s: s * 2, outputs_info=[START], n_steps=N)
    shorter = so.optimize(graph_of(trace[-1]), passes="save-mem").graph
    text = assert_rebuilt(shorter)
    assert "pytensor.scan(" not in text
    assert "ScanInfo(" in text
    one_step = scan(lambda x, s: s + x, sequences=[X], outputs_info=[START], n_steps=N)
    node = one_step.owner.inputs[0].owner
    inputs = [pt.constant(np.int64(1)), *node.inputs[1:]]
    assert _calls(node.op(*inputs)) == (0, 1)


def test_nested_loops_and_equal_bodies() -> None:
    matrix = pt.dmatrix("matrix")

    def row(r: Any) -> Any:
        return scan(lambda e, s: s + pt.exp(e), sequences=[r], outputs_info=[START])[-1]

    rows = [scan(row, sequences=[m], name="rows") for m in (matrix, matrix * 2)]
    text = assert_rebuilt(graph_of(*rows, pt.grad(rows[0].sum(), matrix)))
    assert text.count("def ") == 4
    batched = vectorize_graph(row(X), {X: matrix})
    assert "Blockwise(" in assert_rebuilt(graph_of(batched))


def test_slices_with_names_name_the_results() -> None:
    trace = scan(lambda s: s * 2, outputs_info=[START], n_steps=N)
    trace.name = "population"
    text = assert_rebuilt(graph_of(trace[-1]))
    assert "population = pytensor.scan(" in text
    assert "def step(start_tm1):" in text


def test_the_script_of_a_small_loop_reads_as_one_would_write_it() -> None:
    x, h0, w = pt.dvector("x"), pt.dscalar("h0"), pt.dscalar("w")
    hs = pytensor.scan(
        lambda x_t, h, w: pt.tanh(w * h + x_t),
        sequences=[x],
        outputs_info=[h0],
        non_sequences=[w],
        name="cell",
        return_updates=False,
    )
    head, _, text = so.to_python(([x, h0, w], [hs[-1]])).text.partition("\n\n")
    assert head == "# Written by scanopt python from <memory>"
    assert (
        text
        == """\
import pytensor
import pytensor.tensor as pt


def cell_step(x_t, h0_tm1, w):
    return pt.tanh(w * h0_tm1 + x_t)


x = pt.vector("x", dtype="float64")
h0 = pt.scalar("h0", dtype="float64")
w = pt.scalar("w", dtype="float64")

hs = pytensor.scan(
    cell_step,
    sequences=[x],
    outputs_info=[h0],
    non_sequences=[w],
    name="cell",
    return_updates=False,
)

inputs = [x, h0, w]
outputs = [hs[-1]]
"""
    )


def test_loops_of_scanopt() -> None:
    (last, total), trace = loop.scan(
        lambda c, x: ((c[0] * x, c[1] + c[0]), c[0] - x), (START, 0.0), X, name="traced"
    )
    found = loop.while_loop(lambda s: s < 100.0, lambda s: s * 2.0, START, max_steps=N)
    text = assert_rebuilt(graph_of(last, total, trace, found, pt.grad(last, START)))
    assert "from scanopt_cli import loop" in text
    lowered = so.optimize(graph_of(last, trace), passes="loop").graph
    assert_rebuilt(lowered)
