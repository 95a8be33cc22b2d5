"""What is evaluated while a graph is read or rewritten: little, and nothing that can hurt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from hostile_graphs import CONSTANT, array, integer
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.basic import unconditional_constant_folding

import scanopt_cli as so
from graph_building import graph_of, scan
from scanopt_cli.ir.folding import bounded_folding, is_safe_to_fold

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


@pytest.mark.parametrize("name", CONSTANT)
def test_what_may_hurt_is_left_alone(name: str) -> None:
    out = CONSTANT[name]()
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
