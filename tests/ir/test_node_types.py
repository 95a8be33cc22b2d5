"""What `type_error` finds: inputs that an Op does not take, and outputs that it does not make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import TensorType
from pytensor.typed_list import TypedListType
from pytensor.typed_list.basic import make_list

from scanopt_cli.ir.inner_graphs import all_graphs, walk
from scanopt_cli.ir.node_types import type_error
from support.graph_building import scan
from support.real_graphs import GRAPHS


def nodes_of(*outputs: Variable) -> list[Apply]:
    return list(walk(FunctionGraph(outputs=outputs, clone=False), all_graphs))


def declared(variable: Variable, *shape: int | None) -> Variable:
    """Change the static shape of a variable, whatever computes it."""
    variable.type = TensorType(variable.type.dtype, shape=shape)
    return variable


def joined(length: int) -> Variable:
    return declared(pt.join(0, pt.vector("x"), pt.vector("y")), length)


def allocated(length: int) -> Variable:
    """An array as long as a sum of constants, which PyTensor adds up when it makes the node."""
    return declared(pt.alloc(0.0, pt.constant(2) + pt.constant(3)), length)


def as_long_as_a_trace(length: int) -> Variable:
    trace = scan(lambda h: h + 1, outputs_info=[pt.zeros(())], n_steps=4)
    return declared(pt.alloc(0.0, trace.shape[0]), length)


def drawn(length: int) -> Variable:
    return declared(pt.random.normal(size=pt.constant(2) + pt.constant([1])), length)


@pytest.mark.parametrize(
    ("make", "right", "wrong"),
    [
        (lambda n: declared(pt.exp(pt.vector("x", shape=(3,))), n), 3, 4),
        (lambda n: declared(pt.sort(pt.vector("x", shape=(None,))), n), None, 40),
        (joined, None, 1),
        (allocated, 5, 6),
        (as_long_as_a_trace, 4, 2**40),
        (drawn, 3, 1),
    ],
    ids=["elemwise", "sort", "join", "constant length", "length of a trace", "size of a draw"],
)
def test_static_lengths_are_those_that_the_inputs_imply(
    make: Callable[[Any], Variable], right: int | None, wrong: int
) -> None:
    assert type_error(nodes_of(make(right))) is None
    assert type_error(nodes_of(make(None))) is None
    problem = type_error(nodes_of(make(wrong)))
    assert problem is not None
    assert problem.endswith("has outputs of static shapes that its inputs do not imply")


def test_nodes_of_equal_types_are_told_apart_by_their_constants() -> None:
    x = pt.vector("x", shape=(9,))
    assert type_error(nodes_of(x[:3], x[:4])) is None
    assert type_error(nodes_of(x[:3], declared(x[:4], 3))) is not None


def test_operations_that_make_no_lengths_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x, n = pt.vector("x", shape=(1,)), pt.iscalar("n")
    sums = nodes_of(*(x + float(i) for i in range(20)), *(n + i for i in range(20)))
    made: list[Any] = []
    make_node = Elemwise.make_node

    def counted(self: Elemwise, *inputs: Any) -> Any:
        made.append(inputs)
        return make_node(self, *inputs)

    monkeypatch.setattr(Elemwise, "make_node", counted)
    assert type_error(sums) is None
    of_floats = [inputs for inputs in made if inputs[0].type.dtype == "float64"]
    assert len(of_floats) == 1
    assert len(made) > 20  # each sum of integers: it may be a length
    assert type_error([*sums, *nodes_of(declared(x + 20.0, 8))]) is not None


def test_lengths_inside_loops_are_checked() -> None:
    def step(row: Any) -> Any:
        return declared(pt.sort(row), 40)[0]

    trace = scan(step, sequences=[pt.matrix("rows")])
    problem = type_error(nodes_of(trace))
    assert problem is not None
    assert problem.startswith("SortOp has outputs")


def test_rows_of_a_sequence_are_no_shorter_than_the_loop_takes_them_for() -> None:
    trace = scan(lambda row: row.sum(), sequences=[pt.matrix("rows", shape=(None, 40))])
    loop = trace.owner
    assert isinstance(loop.op, Scan)
    assert type_error(nodes_of(trace)) is None
    rows = pt.matrix("rows")[:, :3]
    loop.inputs[1] = rows
    problem = type_error(nodes_of(trace))
    assert problem is not None
    assert "static shapes" in problem


def test_elements_of_a_list_are_of_its_type() -> None:
    honest = make_list([pt.vector("x"), pt.vector("y")])
    assert type_error(nodes_of(honest)) is None
    honest.type = TypedListType(pt.matrix().type)
    assert (
        type_error(nodes_of(honest)) == "MakeList has outputs that it does not make of its inputs"
    )


def test_looking_upstream_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = [as_long_as_a_trace(4) for _ in range(3)]
    monkeypatch.setattr("scanopt_cli.ir.node_types._MOST_UPSTREAM", 5)
    problem = type_error(nodes_of(*outputs))
    assert problem is not None
    assert problem.startswith("Alloc has outputs")


@pytest.mark.filterwarnings("ignore:A Supervisor feature is missing")
@pytest.mark.parametrize("mode", ["CVM", "NUMBA", "JAX"])
@pytest.mark.parametrize("name", ["random_draws", "scan_second_derivative", "named_dimensions"])
def test_what_pytensor_makes_of_real_graphs_fits(name: str, mode: str) -> None:
    inputs, outputs = GRAPHS[name]()
    fgraph = FunctionGraph(inputs, outputs, clone=True)
    # With JAX installed, this rewrite hides shapes from everything but JAX's own code.
    get_mode(mode).excluding("jax_shape_parameter_as_tuple").optimizer.rewrite(fgraph)
    assert type_error(walk(fgraph, all_graphs)) is None


def test_constants_are_as_long_as_they_are() -> None:
    x = pt.constant(np.arange(3.0))
    assert type_error(nodes_of(declared(x + 1, 3))) is None
    assert type_error(nodes_of(declared(x + 1, 4))) is not None


def test_numbers_given_to_an_inner_graph_may_decide_lengths() -> None:
    """The inner graph of a draw or an OpFromGraph keeps the lengths that constants implied."""
    size, x = pt.constant(5), pt.vector("x", shape=(5,))
    inner_size, inner_x = size.type(), x.type()
    made = OpFromGraph([inner_size, inner_x], [declared(pt.alloc(0.0, inner_size), 5) + inner_x])
    assert type_error(nodes_of(made(size, x))) is None
    lie = OpFromGraph([inner_x], [declared(pt.sort(inner_x)[:2], 40)])
    assert type_error(nodes_of(lie(x))) is not None


@pytest.mark.parametrize("size", [(3,), None, pt.vector("size", shape=(1,), dtype="int64")])
def test_draws_are_of_the_length_that_is_known(size: Any) -> None:
    loc = pt.vector("loc", shape=(3,)) if size is None else 0.0
    assert type_error(nodes_of(declared(pt.random.normal(loc, size=size), 40))) is not None


def test_a_graph_takes_no_rows_of_another_length() -> None:
    x = pt.vector("x", shape=(5,))
    node = OpFromGraph([x], [x + 1])(pt.vector("y", shape=(5,))).owner
    node.inputs[0] = pt.vector("z", shape=(1,))
    assert type_error([node]) == "OpFromGraph takes inputs of other static shapes"
