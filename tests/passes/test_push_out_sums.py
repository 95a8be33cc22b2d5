"""`push-out-sums`: each case that it takes out of a loop, and each that it must leave there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.op import Scan
from pytensor.scan.utils import until

from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotKind
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import (
    arguments,
    graph_of,
    labels,
    only_scan,
    optimized,
    scan,
    scan_info,
    scan_views,
)

RUN = "push-out-sums"
u, v = pt.dmatrix("u"), pt.dmatrix("v")
h, w = pt.dvector("h"), pt.dvector("w")
start = pt.dmatrix("start")
n = pt.lscalar("n")
POINT = {
    "u": np.arange(12.0).reshape(4, 3) - 5,
    "v": np.linspace(1, 2, 8).reshape(4, 2),
    "h": np.array([0.3, -0.2, 0.9]),
    "w": np.array([0.5, 2.0]),
    "start": np.arange(6.0).reshape(3, 2),
    "n": 4,
}

type Step = Callable[..., Any]


def check(*outputs: Variable, **changes: Any) -> tuple[list[ScanView], list[str]]:
    """Run the pass and compare values; return the Scans that are left, and the remarks."""
    graph = graph_of(*outputs)
    work, remarks = optimized(graph, RUN)
    data = arguments(graph, **{**POINT, **changes})
    assert_same_outcomes(
        evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
    )
    return list(scan_views(work.fgraph)), [remark.partition(": ")[2] for remark in remarks]


def summed(step: Step, **more: Any) -> Any:
    """What `scan` makes of a state that ``step`` adds to, from entries of ``u`` and ``v``."""
    return scan(step, **{"sequences": [u, v], "outputs_info": [start], **more})


def last(states: Any) -> Any:
    """The last row of the buffer that ``states`` are read from, the start included."""
    return states.owner.inputs[0][-1]


def outer(left: Any, right: Any) -> Any:
    return left[:, None] * right[None, :]


PRODUCTS: dict[str, Step] = {
    "plain": lambda a, b, s: s + outer(a, b),
    "the other way round": lambda a, b, s: outer(a, b) + s,
    "by a number": lambda a, b, s: s + 0.5 * outer(a, b),
    "of several factors": lambda a, b, s: s + pt.exp(a)[:, None] * outer(a, b) * b[None, :] ** 2,
    "negative": lambda a, b, s: s + (-outer(a, b)),
    "subtracted": lambda a, b, s: s - outer(a, b),
    "subtracted negative": lambda a, b, s: s - (-outer(a, -b)),
    "divided": lambda a, b, s: s + outer(a, b) / b[None, :],
    "divided by a quotient": lambda a, b, s: s + outer(a, b) / (1 / b)[None, :],
    "a quotient": lambda a, b, s: s + a[:, None] / (b[None, :] + 3),
    "dot": lambda a, b, s: s + pt.dot(a[:, None], b[None, :]),
    "two": lambda a, b, s: s + outer(a, b) - outer(a**2, b),
}


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_case_1_outer_products(name: str, steps: int) -> None:
    cut = {"u": POINT["u"][:steps], "v": POINT["v"][:steps]}
    _, remarks = check(last(summed(PRODUCTS[name], n_steps=n)), n=steps, **cut)
    assert remarks == ["summed `start` in a matrix product after the loop"]


def test_case_1_an_untraced_state() -> None:
    """What a mit_mot leaves: `S` is carried on, and only its last value comes out."""
    hs = scan(
        lambda x, h, weights: pt.tanh(x + weights @ h),
        sequences=[pt.dmatrix("x")],
        outputs_info=[h],
        non_sequences=[start],
    )
    graph = graph_of(*pt.grad((hs**2).sum(), [start, h]))
    before = "mit-mot-to-sit-sot,simplify{outer=true}"
    with_sum, _ = optimized(graph, before)
    without, remarks = optimized(graph, f"{before},{RUN}")
    assert any("in a matrix product after the loop" in remark for remark in remarks)
    assert _matrices(with_sum.fgraph) == 1
    assert _matrices(without.fgraph) == 0
    for rows in (0, 1, 5):
        data = arguments(
            graph, x=np.sin(np.arange(3.0 * rows)).reshape(rows, 3), h=POINT["h"], start=np.eye(3)
        )
        assert_same_outcomes(
            evaluate(graph.inputs, graph.outputs, data),
            evaluate(without.inputs, without.outputs, data),
        )


def _matrices(fgraph: Any) -> int:
    """How many states of all loops are matrices."""
    views = scan_views(fgraph)
    return sum(s.inner_inputs[0].type.ndim == 2 for view in views for s in view.of_kind("sit_sot"))


def test_case_2_sequences_are_read_where_they_come_from() -> None:
    """With nothing left to compute there is no loop left."""
    ys = scan(lambda a, b, s: s + outer(a, b), sequences=[u, v], outputs_info=[start])
    assert check(last(ys))[0] == []
    short = {"u": POINT["u"][:2]}
    assert check(last(ys), **short)[0] == []


def test_case_2_what_may_be_too_short_is_traced() -> None:
    """So that a sequence that is too short is still an error."""
    ys = summed(PRODUCTS["plain"], n_steps=n)
    (view,), _ = check(last(ys))
    assert labels(view) == ["seq[0]", "seq[1]", "sit_sot[0]", "sit_sot[1]"]
    check(last(ys), n=5)
    check(last(ys), n=-1)


def test_case_2_of_at_least_one_step_a_trace_is_a_nit_sot() -> None:
    ys = scan(
        lambda b, s, a: [s + outer(a, b), a * 0.5],
        sequences=[v],
        outputs_info=[start, h],
        n_steps=4,
    )
    (view,), _ = check(last(ys[0]))
    assert labels(view) == ["seq[0]", "sit_sot[0]", "nit_sot[0]", "nit_sot[1]"]


STAYS: dict[str, tuple[Step, str | None]] = {
    "not only added": (lambda a, b, s: 2 * s + outer(a, b), None),
    "subtracted from": (lambda a, b, s: outer(a, b) - s, None),
    "added twice": (lambda a, b, s: s + s + outer(a, b), None),
    "more than products": (lambda a, b, s: s + outer(a, b) + pt.exp(outer(a, b)), None),
    "divided by a product": (lambda a, b, s: s + 1 / pt.dot(a[:, None], b[None, :]), None),
    "a row alone": (lambda a, b, s: s + b[None, :], None),
    "the same row in every step": (
        lambda a, _, s, w: s + outer(a, w),
        "a factor of what it adds is the same in every step",
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_is_no_sum_of_products_stays(name: str) -> None:
    step, reason = STAYS[name]
    more = {"non_sequences": [w]} if reason else {}
    (view,), remarks = check(last(summed(step, **more)))
    assert "sit_sot[0]" in labels(view)
    assert remarks == ([f"keeps the sum `start` in the loop: {reason}"] if reason else [])


def test_a_sum_that_the_body_reads_stays() -> None:
    def step(a: Any, b: Any, s: Any) -> Any:
        total = s + outer(a, b)
        return [total, total.sum()]

    ys, sums = summed(step, outputs_info=[start, None])
    assert check(last(ys), sums)[1] == []
    ys, sums = summed(lambda a, b, s: [s + outer(a, b), s.sum()], outputs_info=[start, None])
    assert check(last(ys), sums)[1] == []


@pytest.mark.parametrize(
    "read",
    [
        lambda ys: ys,
        lambda ys: ys[-2],
        lambda ys: ys[1:][-1],
        lambda ys: ys.owner.inputs[0][-1, 0],  # of the buffer itself
    ],
)
def test_a_sum_of_which_more_is_read_stays(read: Step) -> None:
    _, remarks = check(read(summed(PRODUCTS["plain"])))
    assert remarks == ["keeps the sum `start` in the loop: values other than its last are read"]


def test_while_and_batched_loops_stay() -> None:
    stops = summed(lambda a, b, s: (s + outer(a, b), until(b[0] > 1.4)), n_steps=4)
    assert check(last(stops))[1] == ["keeps the sum `start` in the loop: the loop may stop early"]
    total = last(summed(PRODUCTS["plain"], n_steps=4))
    batched = vectorize_graph(total, {start: pt.dtensor3("starts")})
    starts = np.stack([POINT["start"]] * 2)
    assert check(batched, starts=starts)[1] == [
        "keeps the sum `sit_sot[0]` in the loop: the loop is batched"
    ]


def test_integers_and_axes_of_one_stay() -> None:
    i = pt.lmatrix("i")
    whole = scan(lambda a, s: s + outer(a, a), sequences=[i], outputs_info=[pt.zeros((3, 3), int)])
    assert check(last(whole), i=np.arange(6).reshape(2, 3))[1] == []
    one = pt.tensor("one", dtype="float64", shape=(3, 1))
    column = scan(lambda a, s: s + a[:, None], sequences=[u], outputs_info=[one])
    assert check(last(column), one=np.ones((3, 1)))[1] == []
    c = pt.tensor("c", dtype="float64", shape=(None, 1))
    column = scan(lambda a, b, s: s + outer(a, b), sequences=[u, c], outputs_info=[one])
    assert check(last(column), one=np.ones((3, 1)), c=np.ones((4, 1)))[1] == []


def test_an_error_of_shapes_stays() -> None:
    """A state of zeros says how large a sum is, and what it adds must fit."""
    ys = scan(lambda a, b, s: s + outer(a, b), sequences=[u, v], outputs_info=[pt.zeros((2, 2))])
    check(last(ys))


@given(
    factors=st.lists(st.sampled_from(["a", "b", "carry", "w"]), min_size=2, max_size=4),
    steps=st.integers(0, 4),
    is_constant=st.booleans(),
)
def test_generated_products(factors: list[str], steps: int, is_constant: bool) -> None:
    """Any product of columns and rows has the same sum, taken out or not."""

    def step(a: Any, b: Any, s: Any, carry: Any, w: Any) -> Any:
        columns = {"a": a[:, None], "carry": carry[:, None]}
        rows = {"b": b[None, :], "w": w[None, :]}
        product: Any = pt.ones((3, 2)) if len({*factors} & {"a", "carry"}) == 0 else 1.0
        for name in factors:
            product = product * {**columns, **rows}[name]
        return [s + product, pt.tanh(carry + a)]

    ys, carries = scan(
        step,
        sequences=[u, v],
        outputs_info=[start, h],
        non_sequences=[w],
        n_steps=steps if is_constant else n,
    )
    check(last(ys), carries, n=steps)


def test_once_is_enough() -> None:
    ys = summed(PRODUCTS["two"], n_steps=n)
    work, _ = optimized(graph_of(last(ys)), RUN)
    assert "sit_sot" in labels(only_scan(work.fgraph))[-1]
    _, remarks = optimized(work, RUN)
    assert not remarks


def test_must_not_fire_on_scalars_that_are_no_arrays() -> None:
    inner, first = ps.float64("inner"), ps.float64("first")
    info = scan_info(n_untraced_sit_sot=1)
    last = Scan([inner], [ps.sin(inner)], info)(n, first)
    work, _ = optimized(graph_of(last), RUN)
    assert len(list(scan_views(work.fgraph))) == 1


MATRICES = {
    "plain": (lambda a, b, s: s + pt.dot(a, b), (5, 3, 4), (5, 4, 2)),
    "subtracted": (lambda a, b, s: s - pt.dot(a, b), (5, 3, 4), (5, 4, 2)),
    "the left transposed": (lambda a, b, s: s + pt.dot(a.T, b), (5, 4, 3), (5, 4, 2)),
    "the right transposed": (lambda a, b, s: s + pt.dot(a, b.T), (5, 3, 4), (5, 2, 4)),
    "both": (lambda a, b, s: pt.dot(a.T, b.T) + s, (5, 4, 3), (5, 2, 4)),
    "two": (lambda a, b, s: s + pt.dot(a, b) + pt.dot(a.T, b), (5, 3, 3), (5, 3, 2)),
}


def of_matrices(step: Step, **more: Any) -> Any:
    sequences = [pt.dtensor3("left"), pt.dtensor3("right")]
    return scan(step, **{"sequences": sequences, "outputs_info": [start], **more})


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_case_3_products_of_matrices(name: str, steps: int) -> None:
    step, left, right = MATRICES[name]
    rng = np.random.default_rng(0)
    scans, remarks = check(
        last(of_matrices(step)),
        left=rng.normal(size=left)[:steps],
        right=rng.normal(size=right)[:steps],
    )
    assert not scans
    assert remarks == ["summed `start` in a matrix product after the loop"]


NO_MATRICES: dict[str, Step] = {
    "computed": lambda a, b, s: s + pt.dot(pt.exp(a), b),
    "with another term": lambda a, b, s: s + pt.dot(a, b) + b.sum(),
    "of the state": lambda a, b, s: s + pt.dot(a, s),
}


@pytest.mark.parametrize("name", NO_MATRICES)
def test_case_3_must_not_fire(name: str) -> None:
    scans, remarks = check(
        last(of_matrices(NO_MATRICES[name])), left=np.ones((5, 3, 3)), right=np.ones((5, 3, 2))
    )
    assert len(scans) == 1
    assert remarks == []


def test_case_3_sequences_that_may_be_too_short_or_are_not_asked_for() -> None:
    step = MATRICES["plain"][0]
    graph = graph_of(last(of_matrices(step)))
    assert optimized(graph, "push-out-sums{matrices=false}")[1] == []
    view = only_scan(graph.fgraph)
    first = view.of_kind(SlotKind.SEQ)[0]
    whole: Any = first.outer_input
    first.outer_input = whole[::2]
    graph.fgraph.replace_all(list(view.rebuild().items()))
    assert optimized(graph, RUN)[1] == []
