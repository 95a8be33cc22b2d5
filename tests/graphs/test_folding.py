"""What is evaluated while a graph is read or rewritten: little, and nothing that can hurt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.sparse as sparse
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.rewriting.basic import unconditional_constant_folding
from pytensor.tensor.signal.conv import Convolve1d
from pytensor.tensor.subtensor import AdvancedSubtensor

import scanopt_cli as so
from graph_building import graph_of, scan
from scanopt_cli.graphs.folding import bounded_folding, is_safe_to_fold

HUGE = 2**28


def integer(value: int) -> Any:
    return pt.constant(np.int64(value))


def array(value: Any) -> Any:
    return pt.constant(np.asarray(value, dtype="float64"))


def endless() -> Any:
    state = ps.float64("state")
    loop = ScalarLoop(init=[state], update=[ps.sin(state)])
    return Elemwise(loop)(integer(2**62), array(np.ones(3)))


def wild_sparse_matrix() -> Any:
    indices, ends = (
        pt.constant(np.array(v, dtype="int32")) for v in ([0, 2**30, -(2**30), 5], [0, 2, 4])
    )
    shape = pt.constant(np.array([2, 3], dtype="int32"))
    return sparse.dense_from_sparse(sparse.CSM("csr")(array(np.ones(4)), indices, ends, shape))


def inner_graph() -> Any:
    x = pt.dvector()
    return OpFromGraph([x], [x + 1])(array([1.0]))


def many_operands() -> Any:
    return Apply(Elemwise(ps.add), [array(np.ones(3))] * 33, [pt.vector()]).outputs[0]


def far_apart() -> Any:
    rows, columns = np.zeros((15_000, 1), dtype="int64"), np.zeros((1, 15_000), dtype="int64")
    indices = [pt.constant(rows), pt.constant(columns)]
    return AdvancedSubtensor((0, 1))(array(np.ones((2, 2))), *indices)


def a_draw() -> Any:
    rng = pt.random.type.random_generator_type.make_constant(np.random.default_rng(1))
    return pt.random.normal(size=(3,), rng=rng, return_next_rng=True)[1]


def lying_about_its_type() -> Any:
    column, row = array(np.ones((15_000, 1))), array(np.ones((1, 15_000)))
    return Apply(Elemwise(ps.add), [column, row], [pt.tensor(shape=(1, 1))]).outputs[0]


HARMFUL: dict[str, Callable[[], Any]] = {
    "sum over rows of no length": lambda: array(np.empty((HUGE, 0))).sum(1),
    "alloc": lambda: pt.alloc(array(1.0), integer(HUGE)),
    "arange": lambda: pt.arange(integer(0), integer(HUGE), integer(1)),
    "eye": lambda: pt.eye(integer(15_000), integer(15_000), integer(0)),
    "outer sum": lambda: array(np.ones((15_000, 1))) + array(np.ones((1, 15_000))),
    "repeat": lambda: Repeat(0)(array([1.0, 2.0]), pt.constant(np.array([HUGE, 1]))),
    "outer index": far_apart,
    "product of matrices": lambda: pt.dot(*[array(np.ones((500, 500)))] * 2),
    "convolution": lambda: Convolve1d()(*[array(np.ones(10**6))] * 2, ps.constant(np.bool_(True))),
    "scalar loop": endless,
    "loop": lambda: scan(
        lambda y: pt.sin(y), outputs_info=[array(0.5)], n_steps=10**15
    ).owner.inputs[0],
    "inner graph": inner_graph,
    "sparse matrix": wild_sparse_matrix,
    "draw": a_draw,
    "more operands than Python takes": many_operands,
    "a lie about the shape": lying_about_its_type,
}
HARMLESS: dict[str, Callable[[], Any]] = {
    "arithmetic": lambda: pt.add(array([1.0, 2.0]), array([3.0])),
    "a sum": lambda: array([1.0, 2.0]).sum(),
    "a slice": lambda: array([1.0, 2.0])[1:],
    "a shape": lambda: pt.shape(array([1.0, 2.0])),
    "an alloc": lambda: pt.alloc(array(1.0), integer(3)),
    "a range": lambda: pt.arange(integer(0), integer(5), integer(1)),
    "a join": lambda: pt.join(0, array([1.0]), array([2.0])),
    "a product": lambda: pt.dot(array(np.eye(3)), array(np.ones((3, 1)))),
    "a row by a list": lambda: array([1.0, 2.0])[[1, 0]],
}


@pytest.mark.parametrize("name", HARMFUL)
def test_what_may_hurt_is_left_alone(name: str) -> None:
    out = HARMFUL[name]()
    assert not is_safe_to_fold(out.owner)
    x = pt.dscalar("x")
    result = so.optimize(graph_of(out.sum() + x), "simplify{outer=true}")
    assert result.graph.outputs[0].owner is not None


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_small_and_safe_is_evaluated(name: str) -> None:
    out = HARMLESS[name]()
    assert is_safe_to_fold(out.owner)
    with bounded_folding():
        (folded,) = unconditional_constant_folding.transform(None, out.owner)
    np.testing.assert_array_equal(folded.data, out.eval())


def test_lengths_that_are_computed_for_ever_hang_nothing() -> None:
    """PyTensor evaluates them when it makes a node of that length."""
    state = ps.int64("state")
    loop = ScalarLoop(init=[state], update=[ps.add(state, ps.constant(np.int64(1)))])
    steps = Elemwise(loop)(integer(2**62), integer(1))
    a = pt.dscalar("a")
    with bounded_folding():
        ys = scan(lambda y, a: pt.tanh(y * a), outputs_info=[a], non_sequences=[a], n_steps=steps)
        graph = graph_of(pt.grad(ys[-1], a))
    so.optimize(graph, "default")


def test_pytensor_folds_as_ever_outside() -> None:
    before = unconditional_constant_folding.transform
    with bounded_folding(), bounded_folding():
        pass
    assert unconditional_constant_folding.transform == before
    assert "transform" not in vars(unconditional_constant_folding)
    with pytest.raises(ValueError, match="x"), bounded_folding():
        raise ValueError("x")
    assert "transform" not in vars(unconditional_constant_folding)
