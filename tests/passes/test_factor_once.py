"""`factor-once`: a matrix that no step changes is factored once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import IfElse
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until
from pytensor.tensor.linalg import solve
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.lu import LUFactor
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.tridiagonal import LUFactorTridiagonal

import scanopt_cli as so
from scanopt_cli import loop
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.inner_graphs import core_op, inner_graphs, walk
from support.compiled_ways import VM
from support.evaluating import evaluate
from support.graph_building import assert_same_values, graph_of, only_scan, optimized, scan
from support.tiers import deep

a, b = pt.dmatrix("a"), pt.dvector("b")
n = pt.lscalar("n")

_RNG = np.random.default_rng(0)
_ANY = _RNG.normal(size=(5, 5)) + 4 * np.eye(5)
_DEFINITE = _ANY @ _ANY.T
MATRICES = {
    "gen": _ANY,
    "pos": _DEFINITE,
    # Only one triangle is read.
    "sym": np.where(np.tri(5, dtype=bool).T, _ANY + _ANY.T, np.nan),
    "her": np.where(np.tri(5, dtype=bool).T, _ANY + _ANY.T, np.nan),
    "tridiagonal": np.triu(np.tril(_ANY, 1), -1),
}
FACTORS = {"pos": Cholesky, "tridiagonal": LUFactorTridiagonal}
PASSES = "factor-once,remove-unused"


def powers(kind: str, steps: Any = n, **options: Any) -> Any:
    """Apply the inverse of a matrix ``steps`` times."""
    return scan(
        lambda b, a: solve(a, b, assume_a=kind, **options),
        outputs_info=[b],
        non_sequences=[a],
        n_steps=steps,
    )


def kinds(nodes: Any) -> set[type]:
    """Return the Ops that factor or solve, of nodes at the top of a graph."""
    return {type(core_op(node.op)) for node in nodes} & {
        *(Solve, LUFactor, Cholesky, LUFactorTridiagonal)
    }


@pytest.mark.parametrize("kind", MATRICES)
def test_cases_1_to_4(kind: str) -> None:
    graph = graph_of(powers(kind))
    work, remarks = optimized(graph, PASSES)
    assert "1 solution by a matrix that no step changes: factors it once" in remarks[0]
    assert not kinds(only_scan(work.fgraph).op.fgraph.apply_nodes)
    assert optimized(work, PASSES)[1] == []
    for steps in (0, 1, 6):
        assert_same_values(graph, work, a=MATRICES[kind], b=np.arange(5.0), n=steps)


@pytest.mark.parametrize("kind", ["pos", "sym"])
def test_the_triangle_that_is_read(kind: str) -> None:
    graph = graph_of(powers(kind, lower=True))
    work, _ = optimized(graph, PASSES)
    matrix = np.where(np.tri(5, dtype=bool), MATRICES["pos"], np.nan)
    assert_same_values(graph, work, a=matrix, b=np.arange(5.0), n=3)


@pytest.mark.parametrize("kind", ["pos", "sym", "her"])
@pytest.mark.parametrize("lower", [False, True])
def test_the_triangle_that_is_read_of_a_transposed_matrix(kind: str, lower: bool) -> None:
    graph = graph_of(
        scan(
            lambda b, a: solve(a.T, b, assume_a=kind, lower=lower),
            outputs_info=[b],
            non_sequences=[a],
            n_steps=n,
        )
    )
    work, remarks = optimized(graph, PASSES)
    assert remarks
    is_read = np.tri(5, dtype=bool).T if lower else np.tri(5, dtype=bool)
    matrix = np.where(is_read, MATRICES["pos"], np.nan)
    assert_same_values(graph, work, a=matrix, b=np.arange(5.0), n=3)


def test_case_1_what_is_known_of_a_matrix() -> None:
    graph = graph_of(
        scan(lambda b, a: solve(a @ a.T, b), outputs_info=[b], non_sequences=[a], n_steps=n)
    )
    work, _ = optimized(graph, PASSES)
    assert kinds(node for node in walk(work.fgraph)) == {Cholesky}
    assert_same_values(graph, work, a=_ANY, b=np.arange(5.0), n=3)


@pytest.mark.parametrize("kind", ["gen", "tridiagonal"])
def test_a_matrix_and_its_transpose_share_factors(kind: str) -> None:
    graph = graph_of(
        scan(
            lambda b, a: solve(a.T, solve(a, b, assume_a=kind), assume_a=kind),
            outputs_info=[b],
            non_sequences=[a],
            n_steps=n,
        )
    )
    work, remarks = optimized(graph, PASSES)
    assert "2 solutions" in remarks[0]
    factors = [n for n in walk(work.fgraph) if type(core_op(n.op)) in (LUFactor, FACTORS.get(kind))]
    assert len(factors) == 1
    assert_same_values(graph, work, a=MATRICES[kind], b=np.arange(5.0), n=3)


@pytest.mark.parametrize("kind", ["gen", "pos", "sym", "tridiagonal"])
def test_many_right_hand_sides_and_many_systems(kind: str) -> None:
    many, stack = pt.dtensor3("many"), pt.dmatrix("stack")
    columns = scan(
        lambda c, a: solve(a, c, assume_a=kind, b_ndim=2),
        outputs_info=[stack],
        non_sequences=[a],
        n_steps=n,
    )
    vectors = scan(
        lambda c, m: solve(m, c, assume_a=kind, b_ndim=1),
        outputs_info=[stack],
        non_sequences=[many],
        n_steps=n,
    )
    systems = np.stack([_DEFINITE, _DEFINITE + np.eye(5)])
    if kind == "tridiagonal":
        systems = np.triu(np.tril(systems, 1), -1)
    for output, matrices in ((columns, systems[0]), (vectors, systems)):
        graph = graph_of(output)
        work, remarks = optimized(graph, PASSES)
        assert "factors it once" in remarks[0]
        rows = np.arange(10.0).reshape(5, 2) if output is columns else np.arange(10.0).reshape(2, 5)
        given = {"a": matrices} if output is columns else {"many": matrices}
        assert_same_values(graph, work, **given, stack=rows, n=2)


def test_while_loops() -> None:
    graph = graph_of(
        scan(
            lambda b, a: (solve(a, b), until(b.sum() < 1)),
            outputs_info=[b],
            non_sequences=[a],
            n_steps=9,
        )
    )
    work, remarks = optimized(graph, PASSES)
    assert "factors it once" in remarks[0]
    assert_same_values(graph, work, a=_ANY, b=np.arange(5.0))


def test_traced_loops() -> None:
    last, trace = loop.scan(lambda b, _, a: (solve(a, b),) * 2, b, None, a, max_steps=n)
    graph = graph_of(last, trace)
    work, remarks = optimized(graph, PASSES)
    assert "factors it once" in remarks[0]
    (body,) = (g for node in work.fgraph.apply_nodes for g in inner_graphs(node.op))
    assert not kinds(body.apply_nodes)
    for steps in (0, 1, 4):
        assert_same_values(graph, work, a=_ANY, b=np.arange(5.0), n=steps)


@pytest.mark.parametrize("pipeline", [PASSES, "scan-to-loop," + PASSES])
def test_case_5_nested_loops(pipeline: str) -> None:
    graph = graph_of(
        scan(
            lambda b, a: scan(
                lambda c, a: solve(a, c), outputs_info=[b], non_sequences=[a], n_steps=n
            )[-1],
            outputs_info=[b],
            non_sequences=[a],
            n_steps=3,
        )
    )
    work, _ = optimized(graph, pipeline)
    assert LUFactor in kinds(work.fgraph.apply_nodes)
    bodies = [g for node in walk(work.fgraph) for g in inner_graphs(node.op)]
    assert not any(kinds(body.apply_nodes) for body in bodies)
    for steps in (1, 4):
        assert_same_values(graph, work, a=_ANY, b=np.arange(5.0), n=steps)


def test_what_may_raise_is_computed_if_there_is_a_step() -> None:
    graph = graph_of(powers("gen"))
    work, _ = optimized(graph, PASSES)
    assert any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)
    for steps in (0, 2):
        assert_same_values(graph, work, a=np.ones((5, 4)), b=np.ones(5), n=steps)
    always, _ = optimized(graph_of(powers("gen", 3)), PASSES)
    assert not any(isinstance(node.op, IfElse) for node in always.fgraph.apply_nodes)
    bare, _ = optimized(graph, "factor-once{guarded=false}")
    assert not any(isinstance(node.op, IfElse) for node in bare.fgraph.apply_nodes)


@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning")
@pytest.mark.parametrize("kind", ["gen", "pos"])
def test_a_singular_matrix_gives_nan(kind: str) -> None:
    work, _ = optimized(graph_of(powers(kind, 2)[-1]), PASSES)
    given = {"a": np.zeros((5, 5)), "b": np.ones(5)}
    (found,) = evaluate(work.inputs, work.outputs, [given[str(v.name)] for v in work.inputs])
    assert np.isnan(found).tolist() == [True] * 5


def test_a_matrix_that_is_a_constant() -> None:
    matrix = pt.constant(_ANY)
    output = scan(lambda b: solve(matrix, b), outputs_info=[b], n_steps=n)
    graph = graph_of(output)
    work, remarks = optimized(graph, PASSES)
    assert "factors it once" in remarks[0]
    assert_same_values(graph, work, b=np.arange(5.0), n=3)
    with so.enabled():
        function = pytensor.function([b, n], output[-1], mode="NUMBA")
    assert not kinds(walk(function.maker.fgraph))


MUST_NOT_FIRE = {
    "a matrix that changes": lambda: scan(
        lambda c, b: solve(c, b.dimshuffle(0, "x")) @ b[None, :] + 4 * pt.eye(b.shape[0]),
        outputs_info=[a],
        non_sequences=[b],
        n_steps=n,
    ),
    "a matrix of a sequence": lambda: scan(
        lambda row, b, a: solve(a + row, b),
        sequences=[pt.dvector("rows")],
        outputs_info=[b],
        non_sequences=[a],
    ),
    "a solution that no step changes": lambda: scan(
        lambda c, a, b: c + solve(a, b), outputs_info=[b], non_sequences=[a, b], n_steps=n
    ),
    "a banded matrix": lambda: powers("banded"),
    "two dtypes": lambda: scan(
        lambda b, a: solve(pt.cast(a, "float32"), b),
        outputs_info=[b],
        non_sequences=[a],
        n_steps=n,
    ),
    "no matrix": lambda: scan(
        lambda c, b: c * pt.tanh(b), outputs_info=[b], non_sequences=[b], n_steps=n
    ),
    "a batch of loops": lambda: vectorize_graph(
        powers("gen"), {a: pt.dtensor3("many"), b: pt.dmatrix("stack")}
    ),
}


@pytest.mark.parametrize("name", MUST_NOT_FIRE)
def test_must_not_fire(name: str) -> None:
    graph = graph_of(MUST_NOT_FIRE[name]())
    work, remarks = optimized(graph, "factor-once")
    assert remarks == []
    assert digest(work) == digest(graph)


def test_tridiagonal_systems_stay_if_asked() -> None:
    _, remarks = optimized(graph_of(powers("tridiagonal")), "factor-once{tridiagonal=false}")
    assert remarks == []


@pytest.mark.parametrize(
    ("preset", "kind", "mode"),
    [
        ("default", "gen", VM),
        ("grad", "tridiagonal", VM),
        *deep(
            ("default", "gen", "NUMBA"),
            ("grad", "gen", "NUMBA"),
            ("loop", "gen", "NUMBA"),
            ("loop", "pos", "NUMBA"),
            ("grad", "tridiagonal", "NUMBA"),
        ),
    ],
)
def test_no_step_of_a_gradient_factors(preset: str, kind: str, mode: Any) -> None:
    cost = powers(kind, 4)[-1].sum()
    outputs = [cost, *pytensor.grad(cost, [a, b])]
    given = (MATRICES[kind], np.arange(5.0))
    expected = pytensor.function([a, b], outputs, mode="FAST_COMPILE")(*given)
    with so.enabled(preset):
        function = pytensor.function([a, b], outputs, mode=mode)
    for one, other in zip(function(*given), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)
    graph = function.maker.fgraph
    assert FACTORS.get(kind, LUFactor) in kinds(graph.apply_nodes)
    assert not any(kinds(g.apply_nodes) for node in walk(graph) for g in inner_graphs(node.op))


def test_the_preset_loop_of_saved_graphs() -> None:
    cost = powers("gen", 4)[-1].sum()
    work = so.optimize(([a, b], pytensor.grad(cost, [a, b])), passes="loop").graph
    assert Solve not in kinds(walk(work.fgraph))
    bodies = [g for node in work.fgraph.apply_nodes for g in inner_graphs(node.op)]
    assert bodies
    assert not any(kinds(body.apply_nodes) for body in bodies)
    # Small matrices of known shape are solved entry by entry, by which the loop is all numbers.
    small, start = pt.tensor("small", shape=(2, 2)), pt.tensor("start", shape=(2,))
    last = scan(lambda c, s: solve(s, c), outputs_info=[start], non_sequences=[small], n_steps=4)[
        -1
    ]
    work = so.optimize(([small, start], [last]), passes="loop").graph
    assert not kinds(walk(work.fgraph))


@pytest.mark.jax
@pytest.mark.parametrize("kind", ["gen", "pos", "tridiagonal"])
def test_jax(kind: str) -> None:
    pytest.importorskip("jax")
    cost = powers(kind, 4)[-1].sum()
    given = (MATRICES[kind], np.arange(5.0))
    outputs = [cost, *pytensor.grad(cost, [a, b])]
    expected = pytensor.function([a, b], outputs, mode="FAST_COMPILE")(*given)
    with so.enabled():
        function = pytensor.function([a, b], outputs, mode="JAX")
    for one, other in zip(function(*given), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)
