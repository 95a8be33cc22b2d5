"""Where the loops of two graphs part: the step, the node, and what it reads in both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph
from support.graph_building import graph_of, optimized, power, scan
from support.tiers import deep

pytestmark = pytest.mark.usefixtures("evaluated_here")


def _growing(limit: float = 10.0) -> Graph:
    """Grow by half up to a limit, then halve."""
    y = pt.dscalar("y")
    ys = scan(
        lambda y: pt.switch(y > limit, y * 0.5, y * 1.5), outputs_info=[y], n_steps=20, name="grow"
    )
    return graph_of(ys[-1])


def test_the_step_and_the_node() -> None:
    found = so.first_difference(_growing(), _growing(8.0), [1.0])
    # 1.5 ** 6 is over 10, then 5.7 is the first over neither, and 8.5 over one.
    assert (found.differs, found.kind, found.slot) == (True, "node", "y")
    values = [1.0]
    while not 8.0 < values[-1] <= 10.0:
        values.append(values[-1] * (0.5 if values[-1] > 10.0 else 1.5))
    assert found.step == len(values) - 1
    assert found.at is not None
    assert (found.at.a, found.at.b) == ("False", "True")
    read = {pair.name_a: pair for pair in found.inputs}
    assert not read["y[t-1]"].differs
    assert float(read["y[t-1]"].a or "nan") == pytest.approx(values[-1], rel=1e-5)
    (limit,) = (pair for pair in found.inputs if pair.differs)
    assert (limit.a, limit.b) == ("10", "8")
    (loop,) = found.loops
    assert (loop.name_a, loop.steps) == ("grow", found.step + 1)


def test_what_computes_the_same() -> None:
    graph = _growing()
    found = so.first_difference(graph, graph)
    assert (found.differs, found.step, found.at) == (False, None, None)
    assert found.is_drawn
    assert found.steps == 20


@pytest.mark.parametrize("pipeline", ["default", "scan-to-loop", *deep("grad", "loop")])
def test_what_passes_made_of_a_gradient(pipeline: str) -> None:
    x, xs = power(5)
    graph = graph_of(pt.grad(pt.sin(xs[-1]), x))
    work, _ = optimized(graph, pipeline)
    found = so.first_difference(graph, work, [0.9])
    assert not found.differs, found
    assert found.loops


def test_a_gradient() -> None:
    def graph(factor: float) -> Graph:
        x = pt.dscalar("x")
        ys = scan(lambda y: pt.sin(y) * factor, outputs_info=[x], n_steps=4, name="f")
        return graph_of(pt.grad(ys[-1], x))

    found = so.first_difference(graph(1.0), graph(1.5), [0.4])
    assert [loop.name_a for loop in found.loops] == ["f"]
    assert found.step == 0


def test_one_more_step_is_no_difference() -> None:
    found = so.first_difference(graph_of(power(4)[1][-1]), graph_of(power(6)[1][-1]), [0.9])
    assert not found.differs
    assert [(loop.steps, loop.longer) for loop in found.loops] == [(4, "B")]


def test_a_loop_that_is_fed_something_else() -> None:
    def graph(factor: float) -> Graph:
        v = pt.dvector("v")
        ys = scan(
            lambda a, y: a + y, sequences=[v * factor], outputs_info=[v[0]], n_steps=3, name="sums"
        )
        return graph_of(ys)

    found = so.first_difference(graph(2.0), graph(3.0), [np.array([0.0, 0.0, 1.0])])
    assert (found.kind, found.step) == ("input", 2)
    assert found.at is not None
    assert (found.at.a, found.at.b) == ("2", "3")


def test_a_loop_in_a_loop() -> None:
    def graph(factor: float) -> Graph:
        x = pt.dscalar("x")

        def step(y: Any) -> Any:
            inner = scan(lambda z: pt.tanh(z) * factor, outputs_info=[y], n_steps=3, name="inside")
            return inner[-1]

        return graph_of(scan(step, outputs_info=[x], n_steps=2, name="outside"))

    found = so.first_difference(graph(1.0), graph(1.01), [0.5])
    assert [loop.name_a for loop in found.loops] == ["outside", "inside"]
    assert [(one.loop, one.step) for one in found.outer_steps] == [("outside", 0)]
    assert (found.kind, found.step) == ("node", 0)


def test_a_step_that_only_one_can_do() -> None:
    def graph(length: int) -> Graph:
        v = pt.dvector("v")
        ys = scan(
            lambda i, v: v[i], sequences=[pt.arange(length)], non_sequences=[v], n_steps=length
        )
        return graph_of(ys[-1])

    found = so.first_difference(graph(5), graph(5), [np.zeros(3)])
    assert not found.differs  # both raise
    good, bad = pt.dvector("v"), pt.dvector("v")
    with_check = scan(lambda a: a * 1.0, sequences=[good], name="f")
    raising = scan(lambda a: pt.specify_shape(pt.stack([a]), (2,))[0], sequences=[bad], name="f")
    found = so.first_difference(graph_of(with_check), graph_of(raising), [np.zeros(3)])
    assert (found.kind, found.step) == ("error", 0)


def test_graphs_of_other_inputs() -> None:
    x, y = pt.dscalar("x"), pt.dvector("y")
    with pytest.raises(so.VerificationError, match="signatures"):
        so.first_difference(graph_of(x + 1), graph_of(y.sum()))


def test_no_loop_to_compare() -> None:
    found = so.first_difference(_growing(), graph_of(pt.dscalar("y") * 2), [1.0])
    assert (found.differs, found.loops, found.unmatched) == (False, (), ("grow of A",))
