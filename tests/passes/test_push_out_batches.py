"""`push-out-batches`: matrices of sequences are multiplied, factored and solved by at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.conditional.op import IfElse, ifelse
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.op import Scan
from pytensor.scan.utils import until
from pytensor.tensor.linalg import cholesky, det, inv, solve, solve_triangular

import scanopt_cli as so
from scanopt_cli.errors import PassError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.passes.push_out_batches.batched_nodes import is_dear
from scanopt_cli.passes.push_out_batches.push_out_batches import PushOutBatches
from scanopt_cli.pipeline.contract import CompilationTarget
from scanopt_cli.pipeline.grammar import PRESETS
from support.compiled_ways import NUMBA, VM
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import arguments, graph_of, optimized, scan
from support.tiers import deep, examples

XS = pt.dtensor3("XS")
X, w, M = pt.dmatrices("X", "w", "M")
h, v = pt.dvectors("h", "v")
n = pt.lscalar("n")
RUN = "push-out-batches,remove-unused"
FORMS = (RUN, f"scan-to-loop,{RUN}")


def point(steps: int, size: int = 3) -> dict[str, Any]:
    """Arguments, of which the matrices are positive definite, and of lengths that are equal."""
    rng = np.random.default_rng(5)
    roots = rng.normal(size=(max(steps, 1), size, size)) / max(size, 1) ** 0.5
    definite = roots @ roots.transpose(0, 2, 1) + np.eye(size)
    return {
        "XS": definite[:steps],
        "X": rng.normal(size=(steps, size)),
        "w": definite[0],
        "M": np.ones((size, size)),
        "h": np.ones(size),
        "v": rng.normal(size=size),
        "n": steps,
    }


def loop(step: Callable[..., Any], *given: Any, state: Any = h, **more: Any) -> Any:
    """The states of a loop over the first array, with others as non-sequences."""
    sequence, *others = given
    more = {"sequences": [sequence], "outputs_info": [state], **more}
    return scan(step, non_sequences=others, **more)


# With each: the loop, what the remark names, whether `each=false` moves it.
CASES: dict[str, tuple[Callable[[], Any], str, bool]] = {
    "1: a solution by a matrix": (
        lambda: loop(lambda a, y, w: pt.tanh(solve(w, a) + y), X, w),
        "Solve",
        True,
    ),
    "1: solutions of many right sides": (
        lambda: loop(lambda a, y, w: pt.tanh(solve(w, a) + y), XS, w, state=M),
        "Solve",
        True,
    ),
    "1: a solution by a triangle": (
        lambda: loop(lambda a, y, w: pt.tanh(solve_triangular(w, a, lower=True) + y), X, w),
        "SolveTriangular",
        True,
    ),
    "1: a solution of functions of rows": (
        lambda: loop(lambda a, y, w: pt.tanh(solve(w, pt.exp(a) + 1) + y), X, w),
        "Solve",
        True,
    ),
    "2: a matrix by a matrix": (
        lambda: loop(lambda a, y, w: pt.tanh(a @ w + y), XS, w, state=M),
        "Dot",
        False,
    ),
    "2: a matrix left of it": (
        lambda: loop(lambda a, y, w: pt.tanh(w @ a + y), XS, w, state=M),
        "Dot",
        False,
    ),
    "2: a matrix by a vector": (
        lambda: loop(lambda a, y, v: pt.tanh(a @ v + y), XS, v),
        "Dot",
        False,
    ),
    "2: a vector by a vector": (
        lambda: loop(lambda a, y, v: pt.tanh(a @ v * y), X, v),
        "Dot",
        False,
    ),
    "4: a factor": (lambda: loop(lambda a, y: pt.tanh(cholesky(a) @ y), XS), "Cholesky", False),
    "4: an inverse": (lambda: loop(lambda a, y: pt.tanh(inv(a) @ y), XS), "MatrixInverse", False),
    "3: a determinant": (lambda: loop(lambda a, y: pt.tanh(det(a) * y), XS), "Det", False),
    "3: a solution by a row": (
        lambda: loop(lambda a, y, v: pt.tanh(solve(a, v) + y), XS, v),
        "Solve",
        False,
    ),
    "4: a product of rows": (lambda: loop(lambda a, y: pt.tanh((a @ a.T) @ y), XS), "Dot", False),
    "5: what is elementwise in between": (
        lambda: loop(lambda a, y: pt.tanh(cholesky(pt.exp(-a) @ a.T + pt.eye(3)) @ y), XS),
        "Dot and Cholesky",
        False,
    ),
}


FIRST = "1: a solution by a matrix"


def check(*outputs: Variable, passes: str, **changes: Any) -> tuple[Graph, list[str]]:
    """Run the pass and compare values for some numbers of steps."""
    graph = graph_of(*outputs)
    start, _ = optimized(graph, "scan-to-loop") if "scan-to-loop" in passes else (graph, [])
    work, remarks = optimized(start, passes)
    for steps in (0, 1, 4):
        data = arguments(graph, **{**point(steps), **changes})
        before, after = (evaluate(g.inputs, g.outputs, data) for g in (start, work))
        assert_same_outcomes(before, after)
    remarks = [r.partition(": ")[2] for r in remarks]
    return work, [r for r in remarks if "before the loop" in r or "of rows" in r]


def left(graph: Graph) -> int:
    """How many dear operations are in loops that no state decides."""
    nodes = (node for node in graph.fgraph.toposort() if is_loop(node))
    return sum(is_dear(inner) for node in nodes for inner in node.op.fgraph.toposort())


@pytest.mark.parametrize("passes", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_cases(name: str, passes: str) -> None:
    build, ops, is_solution = CASES[name]
    output = build()
    before = left(graph_of(output))
    work, (remark,) = check(output, passes=passes)
    assert remark.startswith(f"computes {ops} of all steps before the loop; holds ")
    assert left(work) == before - len(ops.split(" and "))
    assert not any("of all steps" in r for r in optimized(work, RUN)[1])
    rest = "{products=false,determinants=false,factors=false}"
    _, remarks = check(output, passes=passes.replace("batches", f"batches{rest}"))
    assert [r.split(" ")[0] for r in remarks] == ["computes" if is_solution else "keeps"]


@pytest.mark.parametrize("name", [FIRST, *deep(*list(CASES)[1:])])
@pytest.mark.parametrize("order", [1, *deep(2)])
def test_gradients(name: str, order: int) -> None:
    output = CASES[name][0]()
    by = next(i for i in (XS, X) if i in graph_of(output).inputs)
    slope = pytensor.grad((output**2).sum(), by)
    if order == 2:
        slope = pytensor.grad((slope**2).sum(), h if h in graph_of(output).inputs else M)
    all_cases = "push-out-batches"
    for preset, options in (
        ("grad", "{factors=false}"),
        ("loop", "{products=false,determinants=false,factors=false}"),
    ):
        graph = graph_of(slope)
        passes = PRESETS[preset].replace(all_cases + options, all_cases)
        work, remarks = optimized(graph, passes)
        # A step solves a system instead, since PyTensor's rewriters in `simplify` come first.
        is_solved = name == "4: an inverse"
        assert any("of all steps" in r for r in remarks) is not is_solved
        for steps in (1, 4):
            data = arguments(graph, **point(steps))
            before, after = (evaluate(g.inputs, g.outputs, data) for g in (graph, work))
            assert_same_outcomes(before, after, rtol=1e-7)


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("mode", ["vm", "numba"])
@pytest.mark.parametrize("name", ["4: a factor", FIRST, *deep(*list(CASES)[1:])])
def test_compiled(name: str, mode: str) -> None:
    """No step, too, of which a batch has no entries."""
    output = CASES[name][0]()
    graph = graph_of(output)
    wanted = pytensor.function(graph.inputs, graph.outputs, mode="FAST_COMPILE")
    for passes in FORMS:
        with so.enabled(passes, cache=False):
            function = pytensor.function(
                graph.inputs, graph.outputs, mode=VM if mode == "vm" else NUMBA
            )
        for steps in (0, 1, 4):
            data = arguments(graph, **point(steps))
            np.testing.assert_allclose(function(*data)[0], wanted(*data)[0], rtol=1e-7)


STAYS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a matrix that changes": (lambda: loop(lambda a, y: pt.tanh(a @ y), XS, state=M), []),
    "a loop that may stop": (
        lambda: loop(lambda a, y: (pt.tanh(cholesky(a) @ y), until(y[0] > 5)), XS),
        ["keeps Cholesky of rows in the loop: the loop may stop early"],
    ),
    "a branch": (
        lambda: loop(lambda a, y: ifelse(y[0] > 2, inv(a) @ y, y / 2), XS),
        [],
    ),
    "a matrix that may raise an error": (
        lambda: loop(lambda a, y, w: pt.tanh(solve(inv(w), a) + y), X, w),
        [],
    ),
    "an outer product": (
        lambda: loop(lambda a, y: pt.tanh(pt.dot(a[:, None], a[None]) + y), X, state=M),
        [
            "keeps Dot of rows in the loop: its results at all steps would hold "
            "8*X.shape[0]*X.shape[1]*X.shape[1]-8*X.shape[0]*X.shape[1] bytes more, and "
            "max_growth is 268435456"
        ],
    ),
    "a trace read backwards": (
        lambda: loop(
            lambda a, y, w: pt.tanh(a @ w + y),
            scan(lambda y, w: pt.tanh(y @ w), outputs_info=[M], non_sequences=[w], n_steps=n)[::-1],
            w,
            state=M,
        ),
        ["keeps Dot of rows in the loop: a sequence is the trace of a loop, read backwards"],
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    build, wanted = STAYS[name]
    output = build()
    work, remarks = check(output, passes=RUN)
    assert remarks == wanted
    assert left(work) == left(graph_of(output))


def test_a_branch_that_every_step_computes_too_does_not_keep_it() -> None:
    """The twin of a branch."""
    output = loop(lambda a, y: ifelse(y[0] > 2, inv(a) @ y, y / 2) + inv(a)[0], XS)
    _, remarks = check(output, passes=f"merge-equal,{RUN}")
    assert len(remarks) == 1


def test_a_batch_of_loops_stays() -> None:
    states = loop(lambda a, y: pt.tanh(cholesky(a) @ y), XS)
    node = next(i for i in states.owner.inputs if i.owner and isinstance(i.owner.op, Scan))
    (many,) = vectorize_graph([node], {h: pt.dmatrix("batch")})
    _, remarks = optimized(graph_of(many), RUN)
    assert not any("of all steps" in r for r in remarks)


def test_rows_that_may_not_be_there() -> None:
    states = loop(lambda a, y: pt.tanh(cholesky(a) @ y), XS, n_steps=n)
    loops, _ = optimized(graph_of(states), "scan-to-loop")
    work, remarks = optimized(loops, RUN)
    moved = [r for r in remarks if "of all steps" in r]
    assert len(moved) == (left(work) == 1)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_fewer_steps_than_rows(steps: int) -> None:
    states = loop(lambda a, y: pt.tanh(cholesky(a) @ y), XS, n_steps=n)
    graph = graph_of(states)
    work, remarks = optimized(graph, RUN)
    assert "of all steps" in remarks[0]
    data = arguments(graph, **{**point(4), "n": steps})
    before, after = (evaluate(g.inputs, g.outputs, data) for g in (graph, work))
    assert_same_outcomes(before, after)


@pytest.mark.parametrize(
    ("most", "fits"),
    [pytest.param(8 * 10 * 4 * 18 - 1, False), pytest.param(8 * 10 * 4 * 18, True)],
)
def test_max_growth(most: int, fits: bool) -> None:
    """Ten products of 4 by 20 take the place of ten matrices of 4 by 2."""
    rows = pt.tensor("rows", shape=(10, 4, 2), dtype="float64")
    matrix = pt.tensor("matrix", shape=(2, 20), dtype="float64")
    output = scan(
        lambda a, y, m: pt.tanh((a @ m).sum() * y),
        sequences=[rows],
        outputs_info=[pt.dscalar("y")],
        non_sequences=[matrix],
    )
    _, remarks = optimized(graph_of(output), f"push-out-batches{{max_growth={most}}}")
    told = f"{8 * 10 * 4 * 18} bytes more"
    assert told in remarks[0]
    assert ("computes" in remarks[0]) is fits
    assert fits or f"max_growth is {most}" in remarks[0]


def test_a_sequence_that_is_read_otherwise_is_not_replaced() -> None:
    rows = pt.tensor("rows", shape=(10, 4, 4), dtype="float64")
    for read, more in ((False, "0"), (True, str(8 * 10 * 16))):
        output = scan(
            lambda a, y, read=read: pt.tanh(cholesky(a) @ y + (a[0] if read else 0)),
            sequences=[rows],
            outputs_info=[pt.tensor("y", shape=(4,), dtype="float64")],
        )
        _, remarks = optimized(graph_of(output), "push-out-batches")
        assert f"holds {more} bytes more" in remarks[0]


def test_max_growth_is_a_size() -> None:
    with pytest.raises(PassError, match="max_growth"):
        PushOutBatches(max_growth=-1)


@pytest.mark.parametrize(("linker", "is_slow"), [("numba", False), ("c", True), ("jax", True)])
def test_only_compiled_steps_multiply_and_factor_as_fast(linker: str, is_slow: bool) -> None:
    target = CompilationTarget(linker=linker, preallocates=False)
    none = PushOutBatches(products=False, determinants=False, factors=False)
    adapted = none.adapted(target)
    assert (adapted.products, adapted.determinants, adapted.factors) == (is_slow,) * 3
    assert PushOutBatches().adapted(target) == PushOutBatches()


@pytest.mark.parametrize("name", CASES)
def test_products_and_factors_can_stay(name: str) -> None:
    """The case in the name is the option that keeps it."""
    for option, case in (("products", "2"), ("determinants", "3"), ("factors", "4")):
        _, remarks = optimized(graph_of(CASES[name][0]()), f"push-out-batches{{{option}=false}}")
        moved = any("of all steps" in r for r in remarks)
        stays = name[0] == case or (name[0] == "5" and case == "4")
        assert moved is not stays
        assert any("compiled steps compute it as fast" in r for r in remarks) is stays


def test_a_system_is_not_solved_for_no_step() -> None:
    output = CASES[FIRST][0]()
    work, _ = optimized(graph_of(output), RUN)
    assert any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)
    static = pt.tensor("X", shape=(4, 3), dtype="float64")
    output = loop(lambda a, y, w: pt.tanh(solve(w, a) + y), static, w)
    work, _ = optimized(graph_of(output), RUN)
    assert not any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)


def test_loops_of_a_gradient_share_factors() -> None:
    slope = pytensor.grad((CASES["4: a factor"][0]() ** 2).sum(), XS)
    work, _ = optimized(graph_of(slope), PRESETS["grad"].replace("{factors=false}", ""))
    kinds = [str(node.op) for node in work.fgraph.toposort()]
    assert sum("Cholesky{" in kind for kind in kinds) == 1
    assert not any("Cholesky{" in str(node.op) for node in _inside(work))


def _inside(graph: Graph) -> list[Any]:
    loops = (node for node in graph.fgraph.toposort() if is_loop(node))
    return [inner for node in loops for inner in node.op.fgraph.toposort()]


of_any_lengths = given(
    st.sampled_from([name for name in CASES if not name.startswith("5")]),
    st.sampled_from(FORMS),
    st.integers(0, 4),
    st.integers(1, 4),
)
"""Draws a case, a form of its loop, a number of steps and a size of matrices."""


@settings(max_examples=examples(10, 80))
@of_any_lengths
def test_values_of_any_lengths(name: str, passes: str, steps: int, size: int) -> None:
    graph = graph_of(CASES[name][0]())
    work, _ = optimized(graph, passes)
    data = arguments(graph, **point(steps, size))
    before, after = (evaluate(g.inputs, g.outputs, data) for g in (graph, work))
    assert_same_outcomes(before, after)


@pytest.mark.deep
@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["vm", "numba"])
@settings(max_examples=examples(3, 15))
@of_any_lengths
def test_compiled_values_of_any_lengths(
    mode: Any, name: str, passes: str, steps: int, size: int
) -> None:
    graph = graph_of(CASES[name][0]())
    work, _ = optimized(graph, f"{passes},compile-safe")
    data = arguments(graph, **point(steps, size))
    wanted = evaluate(graph.inputs, graph.outputs, data)
    function = pytensor.function(list(work.inputs), list(work.outputs), mode=mode)
    for right, found in zip(wanted, function(*data), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-12)
