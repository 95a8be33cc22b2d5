"""What PyTensor takes for equal, in one graph or for one frozen node, is kept apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import GradClip, GradScale
from pytensor.graph.basic import Constant, FrozenApply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise
from pytensor.typed_list.type import TypedListType

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import PassError
from scanopt_cli.ir.connection_patterns import declared_pattern
from scanopt_cli.ir.inner_graphs import with_body
from scanopt_cli.ir.interning import is_kept
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save

LISTS = TypedListType(pt.dvector)
SCALAR = ps.float64("s")
NAN = np.array([complex(np.nan, 1.0)])


def listed(value: float) -> Constant:
    return LISTS.make_constant([np.array([value, 1.0])])


def stopping(is_while: bool) -> Elemwise:
    """Stop above 3, or return whether the number is above 3: equal, says PyTensor."""
    flag, above = ps.bool("flag"), ps.lt(3.0, SCALAR * 1.5)
    if is_while:
        return Elemwise(ScalarLoop([SCALAR], [SCALAR * 1.5], [flag], until=above))
    return Elemwise(ScalarLoop([SCALAR, flag], [SCALAR * 1.5, above]))


def squared(**arguments: list[list[bool]]) -> OpFromGraph:
    a = pt.dscalar("a")
    return OpFromGraph([a], [a**2], **arguments)


def inputs_of(op: Op) -> list[Variable]:
    if isinstance(op, Elemwise):
        return [pt.lscalar(), pt.dscalar(), pt.scalar(dtype="bool")]
    return [pt.dscalar()]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pt.constant(NAN), pt.constant(NAN + 1j)),
        (ps.constant(NAN[0]), ps.constant((NAN + 1j)[0])),
        (pt.constant(0.0), pt.constant(-0.0)),
        (listed(0.0), listed(-0.0)),
    ],
    ids=["complex", "complex-scalar", "zero", "list"],
)
def test_constants(one: Constant, other: Constant) -> None:
    op = Elemwise(ps.identity)
    node = FrozenApply(op, (one,), (one.type,))
    assert FrozenApply(op, (other,), (one.type,)) is node
    assert is_kept(op, (one,), node)
    assert not is_kept(op, (other,), node)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (stopping(True), stopping(False)),
        (squared(), squared(connection_pattern=[[False]])),
        (GradScale(2.0), GradScale(3.0)),
        (GradClip(-1, 1), GradClip(-1, 2)),
    ],
    ids=["scalar-loop", "connections", "scale", "clip"],
)
def test_ops(one: Op, other: Op) -> None:
    made = one.make_node(*inputs_of(one))
    types = tuple(output.type for output in made.outputs)
    constants = tuple(v.type.make_constant(v.type.filter(1)) for v in made.inputs)
    node = FrozenApply(one, constants, types)
    assert FrozenApply(other, constants, types) is node
    assert is_kept(one, constants, node)
    assert not is_kept(other, constants, node)


def test_a_pattern_that_pytensor_has_computed_declares_nothing() -> None:
    x = pt.dscalar("x")
    op, same, other = squared(), squared(), squared(connection_pattern=[[False]])

    def key(applied: OpFromGraph) -> str:
        return digest(([x], [applied(x)]), gradients=True)

    before = key(op)
    pytensor.grad(op(x), x)
    assert op._connection_pattern == [[True]]
    assert declared_pattern(op) is None
    assert declared_pattern(other) == [[False]]
    assert key(op) == before != key(other)
    node = FrozenApply(op, (pt.constant(1.0),), (x.type,))
    assert same._connection_pattern is None
    assert is_kept(same, node.inputs, node)


def test_a_body_that_pytensor_would_confuse_is_refused() -> None:
    """Both Ops in one body: freezing keeps the first of them."""
    y, steps, flag = pt.dscalar("y"), pt.lscalar("steps"), pt.scalar("flag", dtype="bool")
    body = OpFromGraph([y, steps, flag], [stopping(True)(steps, y, flag)[0] + y])
    mixed = stopping(True)(steps, y, flag)[0] + stopping(False)(steps, y, flag)[0]
    with pytest.raises(PassError, match="PyTensor confuses"):
        with_body(body, FunctionGraph([y, steps, flag], [mixed], clone=False))
    twice = pt.exp(stopping(True)(steps, y, flag)[0]) + stopping(True)(steps, y, flag)[0]
    with_body(body, FunctionGraph([y, steps, flag], [twice], clone=False))


@pytest.mark.parametrize(
    ("one", "other", "slope"),
    [
        (squared(), squared(connection_pattern=[[False]]), 4.0),
        (GradScale(2.0), GradScale(3.0), 2.0 + 3 * 3.0),
        (GradClip(-1, 1), GradClip(-1, 2), 1.0 + 2.0),
    ],
    ids=["connections", "scale", "clip"],
)
def test_saved_ops_stay_two(one: Op, other: Op, slope: float, tmp_path: Path) -> None:
    """Merged, the output would depend on its input through neither, or through both."""
    x = pt.dscalar("x")
    total = one(x) + 3 * other(x)
    save(([x], [total]), tmp_path / "two.pkl")
    graph = load(tmp_path / "two.pkl")
    found = pytensor.grad(graph.outputs[0], graph.inputs[0])
    assert found.eval({graph.inputs[0]: 2.0}) == slope
    assert digest(([x], [one(x)])) != digest(([x], [other(x)]), gradients=True)
