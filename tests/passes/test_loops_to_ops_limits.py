"""`loops-to-ops` and `push-out`: what would be lost without the loop, so that it stays."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
import pytest
from test_loops_to_ops import added, mapped, v, x

from scanopt_cli.ir.graph import from_io
from support.evaluating import assert_same_outcomes
from support.graph_building import (
    assert_same_values,
    graph_of,
    optimized,
    outputs_of,
    scan,
)
from support.needless_loops import LOOPS, RUN, has_loop


@pytest.mark.parametrize("more", [0, 2])
def test_a_buffer_that_does_not_end_with_the_last_step_stays(more: int) -> None:
    """A Scan leaves zeros behind the last step, which are no last value."""
    node = added(v, start=x).owner.inputs[0].owner
    n_steps, sequence, buffer = node.inputs
    longer = pt.join(0, buffer, pt.zeros(more)) if more else buffer
    graph = graph_of(node.op(n_steps, sequence, longer)[-1])
    work, _ = optimized(graph, RUN)
    assert has_loop(work) is bool(more)
    assert_same_values(graph, work, v=[1.0, 2.0, 3.0], x=0.5)


@pytest.mark.parametrize("limit", [2, 4, -1])
@pytest.mark.parametrize("pipeline", [RUN, "push-out"], ids=["scan", "map"])
@pytest.mark.parametrize("is_map", [True, False])
def test_a_truncated_gradient_stays_truncated(is_map: bool, pipeline: str, limit: int) -> None:
    """What is differentiated after the pass has no gradient by early rows either."""
    short = pt.specify_shape(v, (4,))
    rows = (
        scan(lambda a: pt.exp(a), sequences=[short], truncate_gradient=limit)
        if is_map
        else scan(lambda a, s: s + a, sequences=[short], outputs_info=[x], truncate_gradient=limit)
    )
    graph = graph_of(rows)
    work, _ = optimized(graph, pipeline)
    assert has_loop(work) is (limit == 2 or (pipeline == "push-out" and not is_map))
    found = []
    for one in (graph, work):
        (by,) = [k for k in one.inputs if k.name == "v"]
        (cost,) = one.outputs
        found.append(outputs_of(from_io(one.inputs, [pt.grad(cost.sum(), by)]), v=np.ones(4), x=1))
    assert_same_outcomes(*found)


@pytest.mark.parametrize("pipeline", [RUN, "push-out", LOOPS], ids=["scan", "map", "traced loop"])
@pytest.mark.parametrize("is_map", [True, False])
def test_a_negative_number_of_steps_cuts_no_sequence(is_map: bool, pipeline: str) -> None:
    """It is an error of the loop, and no rows before so many last ones."""
    fewer = v.shape[0] - 4
    rows = (
        scan(lambda a: pt.exp(a), sequences=[v], n_steps=fewer)
        if is_map
        else scan(lambda a, s: s + a, sequences=[v], outputs_info=[x], n_steps=fewer)
    )
    graph = graph_of(rows)
    work, _ = optimized(graph, pipeline)
    assert has_loop(work)
    for count in (5, 6):
        assert_same_values(graph, work, v=np.ones(count), x=0.5)
    (found,) = outputs_of(work, v=np.ones(3), x=0.5)
    assert isinstance(found, Exception)


@pytest.mark.parametrize("pipeline", [RUN, LOOPS], ids=["scan", "traced loop"])
@pytest.mark.parametrize("width", [1, None])
def test_an_inner_product_of_other_lengths_is_an_error(width: int | None, pipeline: str) -> None:
    """A row that is known to have one entry is not broadcast to a column of more."""
    left = pt.tensor("left", dtype="float64", shape=(None, 1))
    right = pt.tensor("right", dtype="float64", shape=(None, width))
    rows = mapped(lambda r, q: pt.dot(r[None, :], q[:, None])[0, 0], left, right)
    graph = graph_of(rows)
    work, _ = optimized(graph, pipeline)
    assert has_loop(work) is (width is None)
    for entries in (1,) if width else (1, 3):
        assert_same_values(graph, work, left=np.ones((4, 1)), right=np.ones((4, entries)))
