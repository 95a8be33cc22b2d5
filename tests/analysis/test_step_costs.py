"""What a step of a loop computes."""

from __future__ import annotations

from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.type import random_generator_type

from scanopt_cli.analysis.named_loops import named_loops
from scanopt_cli.analysis.step_costs import StepCost, step_cost
from scanopt_cli.loop import helpers
from support.graph_building import graph_of, scan


def _costs(*outputs: Any) -> list[StepCost]:
    return [step_cost(loop.view) for loop in named_loops(graph_of(*outputs).fgraph)]


def test_numbers_are_counted() -> None:
    """Reading an entry of an array costs nothing; each operation on numbers is one."""
    x = pt.dmatrix("x")
    (cost,) = _costs(
        scan(lambda row, h: row[0] * h + pt.exp(row[1]), sequences=x, outputs_info=pt.dscalar("h0"))
    )
    assert (cost.numbers, cost.arrays, cost.operations) == (3, (), "3")
    assert str(cost) == "3 nodes on numbers"


def test_arrays_have_the_shapes_of_those_around_the_loop() -> None:
    x, h0, w = pt.dmatrix("x"), pt.dvector("h0"), pt.dmatrix("w")
    (cost,) = _costs(scan(lambda row, h: pt.tanh(w @ h) + row, sequences=x, outputs_info=h0))
    assert cost.numbers == 0
    assert {op.name for op in cost.arrays} >= {"tanh", "add"}
    assert all(op.allocates for op in cost.arrays)
    shapes = {op.name: op.shapes for op in cost.arrays}
    assert shapes["tanh"] == ("(w.shape[0])",)
    assert "w.shape[0]*w.shape[1]" in cost.operations


def test_static_shapes_are_numbers() -> None:
    x = pt.tensor("x", shape=(None, 3), dtype="float32")
    (cost,) = _costs(scan(lambda row: pt.sum(row * row), sequences=x))
    assert {(op.name, op.shapes, op.dtype) for op in cost.arrays} == {
        ("mul", ("(3)",), "float32"),
        ("Sum", (), "float32"),
    }
    assert cost.operations == "6"


def test_equal_operations_are_counted() -> None:
    x = pt.tensor("x", shape=(None, 3))
    (cost,) = _costs(scan(lambda row: pt.exp(pt.exp(row)), sequences=x))
    assert [str(op) for op in cost.arrays] == ["2 exp (3)"]


def test_an_operation_in_place_allocates_nothing() -> None:
    x = pt.tensor("x", shape=(None, 3))
    exp_in_place = Elemwise(ps.exp, {0: 0})
    (cost,) = _costs(scan(lambda row: exp_in_place(row + 1), sequences=x))
    assert {op.name: op.allocates for op in cost.arrays} == {"add": True, "exp": False}
    assert str(cost) == "arrays: add (3), exp (3) in place"


def test_draws_are_no_operations_on_numbers() -> None:
    rng, x = random_generator_type("rng"), pt.dvector("x")

    def step(x: Any, rng: Any) -> Any:
        return pt.random.normal(x, rng=rng, size=None) + pt.random.normal(0, 1, (3,), rng=rng).sum()

    (cost,) = _costs(scan(step, sequences=x, non_sequences=rng))
    assert (cost.draws, cost.is_on_numbers) == (1, False)
    assert ("normal", ("(3)",)) in {(op.name, op.shapes) for op in cost.arrays}
    assert str(cost).endswith("; 1 draw")


def test_loops_inside_are_named() -> None:
    x, start = pt.dmatrix("x"), pt.constant(0.0, dtype="float64")

    def inner(row: Any) -> Any:
        sums = scan(lambda a, s: a + s, sequences=row, outputs_info=start, name="within")
        return sums[-1]

    outer, within = _costs(scan(inner, sequences=x, name="around"))
    assert outer.inner_loops == ("within",)
    assert within.numbers == 1


def test_a_wrapped_graph_is_one_operation() -> None:
    v = pt.dvector("v")
    wrapped = OpFromGraph([v], [pt.exp(v)], name="Wrapped")
    (cost,) = _costs(scan(lambda row: wrapped(row), sequences=pt.dmatrix("x")))
    assert [op.name for op in cost.arrays] == ["Wrapped"]


def test_traced_loops_are_told_alike() -> None:
    xs = pt.dmatrix("xs")
    last, _ = helpers.scan(lambda h, x: (pt.tanh(h + x), h[0]), pt.dvector("h0"), xs)
    (cost,) = _costs(last)
    assert [(op.name, op.shapes) for op in cost.arrays] == [
        ("add", ("(h0.shape[0])",)),
        ("tanh", ("(h0.shape[0])",)),
    ]
