"""`unroll-small`: arrays stay whole if too many of their entries come from arrays that stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import TracedLoop
from support.graph_building import assert_same_values, graph_of, scan
from support.unrolling import VALUES, h, unrolled, weights, wide

N, K = 3, 9
values = pt.dmatrix("values", shape=(N, K))
alpha = pt.dvector("alpha", shape=(N,))
choices = pt.lmatrix("choices", shape=(None, N))
rewards = pt.dmatrix("rewards", shape=(None, N))
subjects = np.arange(N)
rng = np.random.default_rng(3)
GIVEN = {
    **VALUES,
    "values": rng.normal(size=(N, K)),
    "alpha": rng.random(N),
    "choices": rng.integers(0, K, size=(5, N)),
    "rewards": rng.normal(size=(5, N)),
}


def loop_of(graph: Any) -> Any:
    (op,) = (node.op for node in walk(graph.fgraph) if isinstance(node.op, TracedLoop))
    return op


def entrywise(graph: Any) -> int:
    """Count the operations on numbers in a step."""
    return sum(
        isinstance(node.op, Elemwise)
        and node.outputs[0].type.broadcastable == ()
        and node.outputs[0].type.dtype == "float64"
        for node in loop_of(graph).fgraph.apply_nodes
    )


def _learning(choice: Any, reward: Any, q: Any, alpha: Any) -> Any:
    chosen = q[subjects, choice]
    return q[subjects, choice].inc(alpha * (reward - chosen)), chosen - 0.5 * reward


def _running_mean(choice: Any, reward: Any, y: Any, alpha: Any) -> Any:
    return y + alpha * (reward - y), y - 0.5 * reward


def _steps(step: Callable[..., Any], start: Any) -> Any:
    return scan(
        step, sequences=[choices, rewards], outputs_info=[start, None], non_sequences=[alpha]
    )


def test_what_is_read_from_arrays_and_written_back_stays_whole() -> None:
    """Of three learners, each step picks one entry of each; the table is large, and stays."""
    graph = graph_of(*_steps(_learning, values))
    work, remarks = unrolled(graph, "")
    assert not entrywise(work)
    (left,) = (remark for remark in remarks if "leaves" in remark)
    assert left.startswith("missed scan_fn: leaves 4 small arrays of each step whole: ")
    assert "to exchange entries with other arrays" in left
    assert_same_values(graph, work, **GIVEN)


def test_the_same_arithmetic_of_small_arrays_is_unrolled() -> None:
    """Rows of constants are read entry by entry as fast as whole."""
    graph = graph_of(*_steps(_running_mean, alpha * 2))
    work, remarks = unrolled(graph, "")
    assert entrywise(work) >= 3 * N
    assert not any("leaves" in remark for remark in remarks)
    assert_same_values(graph, work, **GIVEN)


# What a step makes of a vector, and whether most of that is arithmetic of its entries.
VECTORS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "arithmetic": (lambda y: pt.tanh(y * 2) + 0.1, True),
    "a sum of all": (lambda y: pt.tanh(y * 2 - 1) * pt.exp(-y) + y.sum(), True),
    "a product": (lambda y: pt.tanh(y + y @ y) + 0.1, True),
    "a write": (lambda y: pt.tanh(y[1].set(y[0]) * 2) + 0.1, False),
    "a system": (lambda y: pt.linalg.inv(pt.outer(y[:2], y[:2]) + pt.eye(2))[0, 0] + y, False),
}


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize(("size", "is_vector"), [(2, False), (3, False), (12, True)])
def test_arithmetic_of_vectors_stays(name: str, size: int, is_vector: bool) -> None:
    """Of few entries numbers are faster, of more those that vectors compute at a time."""
    step, is_arithmetic = VECTORS[name]
    y = pt.tensor("y", dtype="float64", shape=(size,))
    graph = graph_of(scan(step, outputs_info=[y], n_steps=3))
    work, remarks = unrolled(graph, "")
    stays = is_vector and is_arithmetic
    assert bool(entrywise(work)) is not stays
    assert any("vectors compute several of their entries" in r for r in remarks) is stays
    assert_same_values(graph, work, y=np.linspace(-1, 1, size))


@pytest.mark.parametrize(("size", "is_faster"), [(2, False), (3, True), (4, True)])
def test_products_of_matrices_stay(size: int, is_faster: bool) -> None:
    """From 3x3 on, vectors compute them faster than numbers, and compile sooner."""
    p, q = (pt.tensor(name, dtype="float64", shape=(size, size)) for name in "pq")
    graph = graph_of(
        scan(lambda p, q: q @ p @ q.T + q, outputs_info=[p], non_sequences=[q], n_steps=4)
    )
    work, remarks = unrolled(graph, "")
    assert bool(entrywise(work)) is not is_faster
    assert any("vectors compute several of their entries" in r for r in remarks) is is_faster
    given = np.linspace(-1, 1, size**2).reshape(size, size) / size
    assert_same_values(graph, work, p=given, q=given.T + np.eye(size) / 2)


def test_choices_among_entries_are_unrolled() -> None:
    def step(choice: Any, reward: Any, q: Any) -> Any:
        return q[choice].set(q[choice] + 0.1 * (reward - q[choice]))

    graph = graph_of(
        scan(step, sequences=[choices[:, 0] % 4, rewards[:, 0]], outputs_info=[values[0, :4]])
    )
    work, remarks = unrolled(graph, "")
    assert entrywise(work)
    assert not any("leaves" in remark for remark in remarks)
    assert_same_values(graph, work, **GIVEN)


PAYS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "one sum": (lambda y, z: y * 0.5 + z[:3], False),
    "a solution": (
        lambda y, z: pt.linalg.solve(pt.outer(y, y) + 2 * pt.eye(3), z[:3], b_ndim=1),
        True,
    ),
}


@pytest.mark.parametrize("name", PAYS)
def test_a_group_is_unrolled_if_it_saves_more_than_crosses(name: str) -> None:
    """Of a state that is large, three entries are read, and those of a small one are put there."""
    step, pays = PAYS[name]
    ys, zs = scan(
        lambda y, z, weights: [step(y, z), pt.tanh(z) * 0.5 + pt.dot(weights, y)],
        outputs_info=[h, wide],
        non_sequences=[weights],
        n_steps=3,
    )
    graph = graph_of(ys, zs)
    work, remarks = unrolled(graph, "")
    assert (entrywise(work) > 0) is pays
    assert any("leaves" in remark for remark in remarks) is not pays
    assert_same_values(graph, work, **GIVEN)
    # A state of a group that stays whole is one state.
    n_states = loop_of(work).n_states
    assert n_states >= 4 if pays else n_states == 2


def test_a_group_that_stays_whole_leaves_others_alone() -> None:
    """The state that nothing but itself is computed from is unrolled beside the learners."""

    def step(choice: Any, reward: Any, q: Any, y: Any, alpha: Any) -> Any:
        new, _ = _learning(choice, reward, q, alpha)
        return new, pt.tanh(y * 2 + y.sum())

    graph = graph_of(
        *scan(
            step,
            sequences=[choices, rewards],
            outputs_info=[values, h],
            non_sequences=[alpha],
        )
    )
    work, remarks = unrolled(graph, "")
    assert entrywise(work)
    assert any("leaves" in remark for remark in remarks)
    assert any("entry by entry" in remark for remark in remarks)
    assert_same_values(graph, work, **GIVEN)
