"""keep-values: a backward loop reads what the forward loop computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, det, slogdet, solve

import scanopt_cli as so
from scanopt_cli.errors import PassError
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.passes.of_traced_loops.keep_values.value_numbers import ValueNumbers
from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.reports.remark_text import text_of
from support.evaluating import PLAIN
from support.graph_building import scan
from support.tiers import deep

VM = Mode("vm", "fast_run")
X, W = pt.dscalars("x", "w")
S, N = pt.dvector("s"), pt.lscalar("n")
INPUTS = [X, W, S, N]

type Step = Callable[..., Any]
"""Makes the next state from the state, ``w``, a row of the sequence, and the index."""


def arguments(n: int) -> list[np.ndarray]:
    values = 0.7, 1.3, np.linspace(-1, 1, n + 2), n
    return [np.asarray(value) for value in values]


def looped(step: Step, n_steps: Any = N, condition: Any = None) -> list[Variable]:
    """Return last value, trace and count of a loop that reads two rows behind the index, too."""
    index, state, w, s = pt.lscalar(), pt.dscalar(), W.type(), S.type()
    new = step(state, w, s[index + 2], index)
    body = Body(
        index=index, states=[state], next_states=[new], condition=condition and condition(new)
    )
    return TracedLoop.over(n_steps, body, [X], {w: W, s: S})


def gradient(outputs: Any) -> Graph:
    last, trace, _ = outputs
    cost = last**2 + trace.sum()
    slopes = pytensor.grad(cost, INPUTS[:3], disconnected_inputs="ignore")
    return from_io(INPUTS, [cost, *slopes])


def kept(graph: Graph, options: str = "") -> Any:
    return so.optimize(graph, f"unroll-small{{always=true}},keep-values{options}")


def remarks(result: Any) -> list[str]:
    (run,) = (run for run in result.passes if run.name == "keep-values")
    return [text_of(remark) for remark in run.remarks]


def n_dear(graph: Graph) -> int:
    """Count functions that are not cheap in the bodies."""
    ops = [getattr(node.op, "scalar_op", None) for node in walk(graph.fgraph)]
    return sum(type(op).__name__ in ("Tanh", "Exp", "Sin", "Cos") for op in ops)


def check(graph: Graph, result: Any, *, counts: Any = (0, 1, 2, 7), mode: Any = PLAIN) -> None:
    functions = [
        pytensor.function(list(g.inputs), list(g.outputs), mode=m, on_unused_input="ignore")
        for g, m in ((graph, PLAIN), (result.graph, mode))
    ]
    for n in counts:
        for expected, found in zip(*(f(*arguments(n)) for f in functions), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


KEPT: dict[str, tuple[Step, int]] = {
    "of the state": (lambda y, w, s, i: pt.tanh(y) * w, 1),
    "of the state and a constant": (lambda y, w, s, i: pt.tanh(y * w), 1),
    "of a row": (lambda y, w, s, i: y * pt.exp(pt.tanh(s * w)), 2),
    "of all": (lambda y, w, s, i: pt.sin(pt.exp(-(y**2)) * w + s), 1),
    "one of another": (lambda y, w, s, i: pt.tanh(pt.tanh(y * w) * w), 2),
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("mode", [PLAIN, VM], ids=["plain", "VM"])
def test_case_1(name: str, mode: Any) -> None:
    step, count = KEPT[name]
    graph = gradient(looped(step))
    result = kept(graph)
    values = "1 value" if count == 1 else f"{count} values"
    assert remarks(result) == [f"keeps {values} of each step for the loop that runs backwards"]
    assert n_dear(result.graph) < n_dear(graph)
    check(graph, result, mode=mode)


@pytest.mark.deep
def test_in_numba() -> None:
    graph = gradient(looped(KEPT["of all"][0]))
    check(graph, kept(graph), mode="NUMBA")


def test_a_backward_step_that_only_moves_a_cotangent_on() -> None:
    def step(first: Any, second: Any) -> list[Any]:
        return [second, pt.tanh(first)]

    index, first, second = pt.lscalar(), pt.dscalar(), pt.dscalar()
    body = Body(index=index, states=[first, second], next_states=step(first, second))
    last, *_ = TracedLoop.over(N, body, [X, W], {})
    graph = from_io(INPUTS, [last, pytensor.grad(last, X)])
    check(graph, kept(graph))


def test_gradients_of_scans() -> None:
    ys = scan(
        lambda s, y, w: pt.tanh(y * w) + s, sequences=[S], outputs_info=[X], non_sequences=[W]
    )
    graph = from_io(INPUTS, [*pytensor.grad((ys**2).sum(), INPUTS[:3])])
    # It would compute all of them before the loop.
    result = so.optimize(graph, PRESETS["loop"].replace("push-out{cheap=false},", ""))
    assert remarks(result) == ["keeps 1 value of each step for the loop that runs backwards"]
    check(graph, result, counts=(1, 5))


XS, YS = pt.dtensor3("xs"), pt.dmatrix("ys")
MATRICES: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "a factor": (lambda a, b, y: pt.tanh(cholesky(a) @ y + b), "Cholesky"),
    "a determinant": (lambda a, b, y: pt.tanh(det(a) * y + b), "Det"),
    "the log of a determinant": (lambda a, b, y: pt.tanh(slogdet(a)[1] * y + b), "Det"),
    "a solution by a row": (lambda a, b, y: pt.tanh(solve(a, b) + y), "Solve"),
    "a solution for a state": (lambda a, b, y: pt.tanh(solve(a, y) + b), "Solve"),
    "a factor of a state": (
        lambda a, b, y: pt.tanh(cholesky(a + pt.outer(y, y)) @ y + b),
        "Cholesky",
    ),
}


@pytest.mark.parametrize("name", ["a factor", *deep(*list(MATRICES)[1:])])
@pytest.mark.parametrize("linker", ["vm", *deep("numba")])
def test_what_is_computed_of_matrices(name: str, linker: str) -> None:
    """The backward loop of two sequences, whose lengths are not known, computes it no more."""
    step, op = MATRICES[name]
    start = pt.dvector("start")
    states = scan(step, sequences=[XS, YS], outputs_info=[start])
    cost = (states**2).sum()
    graph = from_io([XS, YS, start], [cost, *pytensor.grad(cost, [XS, YS, start])])
    result = so.optimize(graph, "loop")
    assert any("for the loop that runs backwards" in r for r in remarks(result))
    by_loop = [
        sum(type(core_op(inner.op)).__name__ == op for inner in node.op.fgraph.apply_nodes)
        for node in result.graph.fgraph.toposort()
        if isinstance(node.op, TracedLoop)
    ]
    assert by_loop == [1, 1 if op == "Solve" else 0]  # that by the transpose stays
    # In place, SciPy's solutions are read-only, which PyTensor's next Op overwrites.
    mode = VM.excluding("inplace") if linker == "vm" else "NUMBA"
    functions = [
        pytensor.function(g.inputs, g.outputs, mode=m)
        for g, m in ((graph, PLAIN), (result.graph, mode))
    ]
    rng = np.random.default_rng(4)
    roots = rng.normal(size=(5, 2, 2))
    matrices = roots @ roots.transpose(0, 2, 1) + np.eye(2)
    for n, m in ((1, 1), (5, 5), (3, 5), (5, 3)):
        given = matrices[:n], rng.normal(size=(m, 2)), np.ones(2)
        for expected, found in zip(*(f(*given) for f in functions), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_solutions_by_other_matrices_are_others() -> None:
    """The twin: a factor of the other triangle is no factor of this one."""
    values, (one, other) = ValueNumbers(), (cholesky(XS[0], lower=low) for low in (True, False))
    number = values.opaque("matrix")
    assert values.computed(one, [number]) != values.computed(other, [number])
    assert values.computed(one, [number]) == values.computed(cholesky(XS[1]), [number])
    sign, log = slogdet(XS[0])
    assert values.computed(sign, [number]) != values.computed(log, [number])


def filtered(start: Any, step: Any, moves: Any, shape: tuple[int, ...]) -> Graph:
    """The gradient of a hidden Markov model, of which a state has the entries of an array."""
    rows = pt.tensor("rows", dtype="float64", shape=(None, 3))
    logs = scan(step, sequences=[rows], outputs_info=[start], non_sequences=[moves])
    cost = pt.logsumexp(logs[-1])
    return from_io([rows, start, moves], [cost, *pytensor.grad(cost, [rows, start, moves])])


HIDDEN: dict[str, tuple[Any, tuple[int, ...]]] = {
    "a vector": (lambda e, logs, m: e + pt.logsumexp(logs[:, None] + m, axis=0), (3,)),
    "a matrix": (
        lambda e, logs, m: e[:, None] + m * pt.logsumexp(logs, axis=0),
        (3, 2),
    ),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("n_steps", [1, 2, 6])
def test_entries_of_arrays(name: str, n_steps: int) -> None:
    """The backward loop reads them from the trace of the array; the forward loop carries them."""
    step, shape = HIDDEN[name]
    start = pt.tensor("start", dtype="float64", shape=shape)
    moves = pt.tensor("moves", dtype="float64", shape=(3, shape[-1]))
    graph = filtered(start, step, moves, shape)
    result = so.optimize(graph, "loop")
    count = 9 if name == "a vector" else 8
    assert f"keeps {count} values of each step for the loop that runs backwards" in remarks(result)
    rng = np.random.default_rng(1)
    values = [rng.normal(size=s) for s in ((n_steps, 3), shape, (3, shape[-1]))]
    functions = [pytensor.function(g.inputs, g.outputs, mode=PLAIN) for g in (graph, result.graph)]
    for expected, found in zip(*(f(*values) for f in functions), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_entries_that_start_from_other_values_stay() -> None:
    """A state whose next value is an entry of an array, but whose first value is not."""
    start, other = pt.tensor("start", shape=(2,)), pt.dscalar("other")
    n = pt.lscalar("n")
    index, rows, number = pt.lscalar(), start.type(), other.type()
    new = pt.exp(-rows[0]) + number, pt.sin(rows[1])
    body = Body(
        index=index,
        states=[rows, number],
        next_states=[pt.stack(new), new[0]],
        traced=[pt.exp(-(number**2))],
    )
    _, last, trace, numbers, traced, _ = TracedLoop.over(n, body, [start, other], {})
    cost = (trace**2).sum() + (numbers**2).sum() + last + traced.sum()
    graph = from_io([start, other, n], [cost, *pytensor.grad(cost, [start, other])])
    result = so.optimize(graph, "unroll-small{always=true},keep-values")
    functions = [pytensor.function(g.inputs, g.outputs, mode=PLAIN) for g in (graph, result.graph)]
    for steps in (0, 1, 2, 5):
        values = np.array([0.3, 0.9]), 2.0, steps
        for expected, found in zip(*(f(*values) for f in functions), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_a_second_run_finds_nothing() -> None:
    first = kept(gradient(looped(KEPT["of all"][0])))
    assert not kept(first.graph).changed


@pytest.mark.deep
def test_long_steps() -> None:
    def step(y: Any, w: Any, s: Any, i: Any) -> Any:
        for _ in range(700):
            y = y * s + w
        return pt.tanh(y)

    assert kept(gradient(looped(step))).changed


def test_many_numbers_stay() -> None:
    def step(y: Any, w: Any, s: Any, i: Any) -> Any:
        for _ in range(101):
            y = pt.exp(-y) + w
        return y

    result = kept(gradient(looped(step)))
    assert not result.changed
    assert remarks(result) == ["more than 100 values of a step would be kept"]


def test_numbers_that_the_index_decides_stay() -> None:
    """The backward loop counts the other way."""
    graph = gradient(looped(lambda y, w, s, i: pt.tanh(i * 0.1) * y))
    assert not kept(graph).changed


@pytest.mark.parametrize(
    "step", [lambda y, w, s, i: y * y * w + s, lambda y, w, s, i: pt.maximum(y, s) / w]
)
def test_cheap_arithmetic_stays(step: Step) -> None:
    assert not kept(gradient(looped(step))).changed


def test_loops_that_may_stop_stay() -> None:
    outputs = looped(lambda y, w, s, i: pt.tanh(y * w), condition=lambda y: y > 0.2)
    assert not kept(gradient(outputs)).changed


def test_what_takes_much_memory_stays() -> None:
    graph = gradient(looped(lambda y, w, s, i: pt.tanh(y * w), pt.constant(1_000_000)))
    result = kept(graph, "{memory=7}")
    assert not result.changed
    assert remarks(result) == ["the values to keep would take 7 MiB"]
    assert kept(graph, "{memory=8}").changed
    with pytest.raises(PassError, match="from 0 on"):
        kept(graph, "{memory=-1}")


def reader(
    of_rows: Callable[[Any], Any], n_steps: Any = N, by: Any = W, *, reads: Any = None
) -> Graph:
    """A loop beside ``y = tanh(y * w)`` that adds up tanh of rows of its trace times a constant."""
    trace = looped(lambda y, w, s, i: pt.tanh(y * w))[1]
    index, total, rows, w = pt.lscalar(), pt.dscalar(), trace.type(), W.type()
    row = rows[index] if reads is None else rows[reads(index)]
    body = Body(index=index, states=[total], next_states=[total * 0.5 + pt.tanh(row * w)])
    start = pt.zeros(())
    last = TracedLoop.over(n_steps, body, [start], {rows: of_rows(trace), w: by})[0]
    return from_io(INPUTS, [trace, last])


def test_rows_of_the_step_that_is_undone() -> None:
    graph = reader(lambda trace: trace[-2::-1])
    result = kept(graph)
    assert result.changed
    check(graph, result)


@pytest.mark.parametrize(
    ("rows", "is_kept"),
    [
        pytest.param(lambda i, n: (n - 1 - i, i), True, id="the other way"),
        pytest.param(lambda i, n: (2 * i, 2 * (n - 1 - i)), True, id="every second"),
        pytest.param(lambda i, n: (i, i), False, id="of another step"),
        pytest.param(lambda i, n: (2 * i, 2 * (n - 1 - i) + 1), False, id="the next"),
        pytest.param(lambda i, n: (i - 1, n - 2 - i), False, id="in the first step, the last"),
    ],
)
def test_rows_of_constants(rows: Callable[[Any, Any], Any], is_kept: bool) -> None:
    """Both loops read a constant, one by the index, and one counting back."""
    table, index, y, s, n = pt.dvector("table"), pt.lscalar(), pt.dscalar(), S.type(), N.type()
    forth, back = rows(index, n)
    body = Body(index=index, states=[y], next_states=[pt.tanh(s[forth]) * y])
    constants = {s: table, n: N}
    trace = TracedLoop.over(N, body, [X], constants)[1]
    read = trace.type()
    body = Body(index=index, states=[y], next_states=[y + read[index] * pt.tanh(s[back])])
    last = TracedLoop.over(N, body, [X], {read: trace[-2::-1], **constants})[0]
    graph = from_io([X, N, table], [trace, last])
    result = so.optimize(graph, "keep-values")
    assert result.changed == is_kept
    functions = [pytensor.function(g.inputs, g.outputs, mode=PLAIN) for g in (graph, result.graph)]
    for n_steps in (0, 1, 4):
        values = np.array(0.7), np.array(n_steps), np.linspace(-1, 1, 8)
        for expected, found in zip(*(f(*values) for f in functions), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(lambda: reader(lambda trace: trace[::-1]), id="a row later"),
        pytest.param(lambda: reader(lambda trace: trace[:-1]), id="forwards"),
        pytest.param(lambda: reader(lambda trace: trace[-2::-1], by=X), id="another constant"),
        pytest.param(lambda: reader(lambda trace: trace[-2::-1], N - 1), id="fewer steps"),
        pytest.param(
            lambda: reader(lambda trace: trace[-2::-1], reads=lambda i: i // 2),
            id="some rows twice",
        ),
        pytest.param(
            lambda: reader(lambda trace: trace[-2::-1] * 1.0), id="rows that are computed"
        ),
        pytest.param(lambda: reader(lambda trace: trace[-2::-2], N // 2), id="every second"),
    ],
)
def test_other_rows_stay(graph: Callable[[], Graph]) -> None:
    assert not kept(graph()).changed


@pytest.mark.parametrize(
    ("argument", "is_same"),
    [
        (lambda w, row: w + row * w, True),
        (lambda w, row: w - row * w, False),
        (lambda w, row: w + (-row) * w, False),
    ],
)
def test_a_difference_is_not_a_sum(argument: Any, is_same: bool) -> None:
    """The forward loop computes tanh of a sum, of which the other subtracts a term."""
    trace = looped(lambda y, w, s, i: pt.tanh(w + y * w))[1]
    index, total, rows, w = pt.lscalar(), pt.dscalar(), trace.type(), W.type()
    new = total * 0.5 + pt.tanh(argument(w, rows[index]))
    body = Body(index=index, states=[total], next_states=[new])
    last = TracedLoop.over(N, body, [pt.zeros(())], {rows: trace[-2::-1], w: W})[0]
    graph = from_io(INPUTS, [trace, last])
    result = kept(graph)
    assert result.changed == is_same
    check(graph, result)


_LEAVES = ("y", "w", "s", "c")


def _trees(depth: int) -> st.SearchStrategy[Any]:
    leaf = st.sampled_from(_LEAVES)
    if not depth:
        return leaf
    below = _trees(depth - 1)
    return (
        leaf
        | st.tuples(st.sampled_from("+*-"), below, below)
        | st.tuples(st.sampled_from(("tanh", "sin", "exp")), below)
    )


def _built(tree: Any, leaves: dict[str, Any]) -> Any:
    if isinstance(tree, str):
        return leaves[tree]
    name, *parts = tree
    made = [_built(part, leaves) for part in parts]
    if name in "+*-":
        return {"+": made[0] + made[-1], "*": made[0] * made[-1], "-": made[0] - made[-1]}[name]
    return {"tanh": pt.tanh, "sin": pt.sin, "exp": lambda v: pt.exp(-(v**2))}[name](made[0])


@pytest.mark.hypothesis
@given(_trees(3), st.sampled_from(["plain", "vm"]))
def test_gradients_of_any_step(tree: Any, mode: str) -> None:
    def step(y: Any, w: Any, s: Any, i: Any) -> Any:
        return pt.tanh(_built(tree, {"y": y, "w": w, "s": s, "c": pt.constant(0.3)}) + y * 0.1)

    graph = gradient(looped(step))
    check(graph, kept(graph), mode={"plain": PLAIN, "vm": VM}[mode])


def test_a_slice_cuts_the_axis_of_the_array_that_it_is_taken_of() -> None:
    """``s[i][::-1]`` reverses a row, not the order of the rows."""
    table = pt.tensor("table", shape=(4, 4), dtype="float64")
    index, y, s = pt.lscalar(), pt.dscalar(), table.type()
    body = Body(index=index, states=[y], next_states=[pt.tanh(s[index][::-1][index]) * y])
    trace = TracedLoop.over(4, body, [X], {s: table})[1]
    read = trace.type()
    new = y + read[index] * pt.tanh(s[index][3 - index])
    body = Body(index=index, states=[y], next_states=[new])
    last = TracedLoop.over(4, body, [X], {read: trace[-2::-1], s: table})[0]
    graph = from_io([X, table], [trace, last])
    result = so.optimize(graph, "keep-values")
    functions = [pytensor.function(g.inputs, g.outputs, mode=PLAIN) for g in (graph, result.graph)]
    values = 0.7, np.arange(16.0).reshape(4, 4) / 10
    for expected, found in zip(*(f(*values) for f in functions), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert not result.changed


def test_axes_of_one_entry_do_not_hide_how_others_are_exchanged() -> None:
    array, values = pt.tensor3("array"), ValueNumbers()
    wide, tall = array.dimshuffle(0, 1, 2, "x"), array.dimshuffle("x", 0, 1, 2)
    own = values.opaque(array)
    assert values.computed(wide, [own]) == values.computed(tall, [own]) == own
    moved = [values.computed(v.dimshuffle(1, 0, 3, 2), [own]) for v in (wide, tall)]
    assert moved[0] != moved[1]
    assert moved[0] == values.computed(array.dimshuffle(1, 0, "x", 2), [own])


def test_a_sum_of_sums_takes_no_time() -> None:
    def step(y: Any, w: Any, s: Any, i: Any) -> Any:
        for _ in range(60):
            y = y + y
        return pt.tanh(y * 2.0**-60)

    graph = gradient(looped(step))
    assert so.optimize(graph, "keep-values").changed
