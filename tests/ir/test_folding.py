"""What is evaluated while a graph is read or rewritten: little, and nothing that can hurt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.configdefaults import config
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.basic import unconditional_constant_folding

import scanopt_cli as so
from scanopt_cli.ir.folding import MOST, bounded_folding, work_of
from support.graph_building import graph_of, scan
from support.hostile.graphs import CONSTANT, array, integer

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
    assert work_of(out.owner) > MOST
    x = pt.dscalar("x")
    result = so.optimize(graph_of(out.sum() + x), "simplify{outer=true}")
    assert result.graph.outputs[0].owner is not None


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_small_and_safe_is_evaluated(name: str) -> None:
    out = HARMLESS[name]()
    assert work_of(out.owner) <= MOST
    with bounded_folding():
        (folded,) = unconditional_constant_folding.transform(None, out.owner)
    np.testing.assert_array_equal(folded.data, out.eval())


def test_many_operands_are_not_folded_in_c() -> None:
    """Beyond 32 inputs and outputs PyTensor's Python code gives up, and C would be compiled."""
    total = pt.add(*[array([1.0, 2.0])] * 32)
    assert work_of(total.owner) > MOST
    assert work_of(pt.add(*[array([1.0, 2.0])] * 30).owner) <= MOST


def test_what_has_no_python_code_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTensor would compile it to C."""
    node = (array([1.0]) + array([2.0])).owner

    def fail(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(Elemwise, "perform", fail)
    with bounded_folding(), config.change_flags(cxx="no-such-compiler"):
        assert unconditional_constant_folding.transform(None, node) in (False, None)


def test_all_nodes_together_take_no_longer_than_a_few() -> None:
    """A row and a column of a thousand numbers make a million."""
    node = (array(np.ones((1, 1_000))) + array(np.ones((1_000, 1)))).owner
    with bounded_folding():
        folded = [unconditional_constant_folding.transform(None, node) for _ in range(40)]
    assert [bool(result) for result in folded] == [True] * 16 + [False] * 24


def test_special_functions_count_more() -> None:
    values = array(np.ones(100_000))
    assert work_of(pt.exp(values).owner) <= MOST
    assert work_of(pt.cast(values, "float32").owner) <= MOST
    assert work_of(pt.erf(values).owner) > MOST


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
