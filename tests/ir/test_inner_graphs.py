"""Graphs inside of graphs, counted."""

from __future__ import annotations

import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.xtensor.type import xtensor
from pytensor.xtensor.vectorization import XBlockwise, XElemwise

from scanopt_cli.ir.graph import from_io
from scanopt_cli.ir.inner_graphs import unfolded, walk

VECTOR, NAMED = pt.dvector("x"), xtensor("x", dims=("a",))


def counted(op: Op, x: Variable) -> int:
    return unfolded(from_io([x], op.make_node(x).outputs).fgraph)[0]


@pytest.mark.parametrize("times", [0, 1, 5])
def test_bodies_count_wherever_they_are_applied(times: int) -> None:
    x = pt.dscalar("x")
    op = OpFromGraph([x], [pt.sin(x)])
    for _ in range(times):
        op = OpFromGraph([x], [op(op(x))])
    size = 3 * 2**times - 2
    assert counted(Blockwise(op, signature="()->()"), VECTOR) == size
    assert counted(XBlockwise(op, core_dims=(((),), ((),))), NAMED) == size


def test_bodies_of_scalars_count() -> None:
    x = ps.float64("x")
    op = ps.Composite([x], [ps.sin(ps.cos(ps.exp(x)))])
    assert counted(Elemwise(op), VECTOR) == counted(XElemwise(op), NAMED) == 3


def test_an_op_that_many_nodes_share_is_looked_into_once() -> None:
    x = y = pt.dvector("x")
    for _ in range(100):
        y = pt.exp(y)
    looked: list[Op] = []
    graph = from_io([x], [y]).fgraph
    assert len(list(walk(graph, lambda op: looked.append(op) or ()))) == 100
    assert len(looked) == len({id(node.op) for node in graph.apply_nodes})
