"""`initial-rows-alone`: initial buffers in which only the initial rows are set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.graph.basic import Variable

from scanopt_cli.errors import PassError
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.slots import SlotKind
from support.evaluating import PLAIN
from support.graph_building import graph_of, optimized, scan, scan_views
from support.tiers import deep

x, w = pt.dscalar("x"), pt.dscalar("w")
n = pt.lscalar("n")
VALUES = {"x": 2.0, "w": 3.0}
PASS = "initial-rows-alone"


def filled(rows: int, steps: Any = 3) -> Variable:
    """Return the buffer of a state that starts from ``rows`` rows that are all x."""
    ys = scan(lambda y, w: y * w, outputs_info=[x], non_sequences=[w], n_steps=4)
    loop = ys.owner.inputs[0].owner.op
    return loop(pt.as_tensor(steps, dtype="int64"), pt.alloc(x, rows), w)


def values(graph: Graph, mode: Any, **more: int) -> list[Any]:
    known = VALUES | more
    arguments = [known[str(variable.name)] for variable in graph.inputs]
    return function(graph.inputs, graph.outputs, mode=mode)(*arguments)


@pytest.mark.parametrize("mode", [PLAIN, *deep("CVM", "NUMBA")], ids=["plain", "cvm", "numba"])
@pytest.mark.parametrize(
    ("rows", "steps"), [(4, 3), (2, 1), (1, 0), (6, 3), (4, 0), (2, 3)], ids=str
)
def test_cases_1_and_2_keep_values(rows: int, steps: int, mode: Any) -> None:
    """With as many rows as there are steps, with more, and with a buffer that was trimmed."""
    graph = graph_of(filled(rows, steps))
    after, remarks = optimized(graph, PASS)
    assert [line for line in remarks if "only the initial rows are set" in line] == remarks != []
    assert optimized(after, PASS)[1] == []
    np.testing.assert_array_equal(values(after, mode)[0], values(graph, mode)[0])


def test_case_2_an_unknown_number_of_steps() -> None:
    graph = from_io([x, w, n], [filled(4, n)])
    after, remarks = optimized(graph, PASS)
    assert len(remarks) == 1
    assert optimized(after, PASS)[1] == []
    slope = pt.grad(after.outputs[0][-1], after.inputs[0])
    assert float(function(after.inputs, slope, mode=PLAIN)(2.0, 3.0, 3)) == 27.0
    for steps in (0, 1, 3):
        wanted, found = (values(one, PLAIN, n=steps)[0] for one in (graph, after))
        np.testing.assert_array_equal(found, wanted)


def test_the_gradient_is_that_of_the_initial_row() -> None:
    after, _ = optimized(from_io([x, w], [filled(4)[-1]]), PASS)
    slope = pt.grad(after.outputs[0], after.inputs[0])
    np.testing.assert_allclose(function(after.inputs, slope, mode=PLAIN)(2.0, 3.0), 27.0)


def test_twin_a_buffer_that_is_empty_otherwise() -> None:
    ys = scan(lambda y, w: y * w, outputs_info=[x], non_sequences=[w], n_steps=4)
    assert optimized(graph_of(ys), PASS)[1] == []


def test_twin_a_mit_mot() -> None:
    s = pt.dvector("s")
    ys = scan(lambda q, y: y * q, sequences=[s], outputs_info=[x])
    graph = graph_of(pt.grad(ys[-1], s))
    views = list(scan_views(graph.fgraph))
    assert any(view.of_kind(SlotKind.MIT_MOT) for view in views)
    assert optimized(graph, PASS)[1] == []


def test_it_does_not_stand_beside_the_pass_that_fills_buffers() -> None:
    with pytest.raises(PassError, match="initial-rows-alone undoes clean-slices"):
        optimized(graph_of(filled(4)), f"clean-slices,{PASS}")
