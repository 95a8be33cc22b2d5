"""Ops that PyTensor, or a careless look, takes for the same, and that compute otherwise."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.equivalence.canonical import digest
from support.evaluating import evaluate
from support.graph_building import graph_of, optimized


class Unary(Op):
    """An Op of one input that applies ``function``."""

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(self.function(inputs[0]))

    def function(self, value: Any) -> Any:
        raise NotImplementedError


class Slotted(Unary):
    """Holds its factor in a slot."""

    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def function(self, value: Any) -> Any:
        return value * self.factor


class Chain(Unary):
    """Applies functions in the order of a dictionary."""

    def __init__(self, *names: str) -> None:
        self.names = dict.fromkeys(names)

    def function(self, value: Any) -> Any:
        for name in self.names:
            value = getattr(np, name)(value)
        return value


class Flags(enum.IntFlag):
    """Values beyond the named one have no name."""

    ONE = 1


class Flagged(Unary):
    """Multiplies by a flag, which is a property."""

    __props__ = ("flag",)

    def __init__(self, flag: Flags) -> None:
        self.flag = flag

    def function(self, value: Any) -> Any:
        return value * int(self.flag)


class Whole(int):
    """A number that does not print its value."""

    def __repr__(self) -> str:
        return "Whole"


class Times(Unary):
    """Multiplies by a property."""

    __props__ = ("factor",)

    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def function(self, value: Any) -> Any:
        return value * int(self.factor)


@dataclasses.dataclass
class Settings:
    """A field, and in a class of its own more than fields."""

    field: int = 1


class MoreSettings(Settings):
    """Has an attribute that is no field."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor


class Configured(Unary):
    """Multiplies by what its settings hold."""

    def __init__(self, settings: MoreSettings) -> None:
        self.settings = settings

    def function(self, value: Any) -> Any:
        return value * self.settings.factor


class Before(ps.EQ):
    """Looks like a comparison for equality and is none."""

    nfunc_spec = None

    def impl(self, x, y):
        return x < y


class Performing(OpFromGraph):
    """Does not compute what its graph says."""

    def __init__(self, *arguments: Any, factor: float) -> None:
        self.factor = factor
        super().__init__(*arguments)

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0] * self.factor)


class Scaled(SymbolicOp):
    """Differentiated by a property."""

    __props__ = ("scale",)

    def build_inner_graph(self, x):
        return [pt.tanh(x)]

    def pullback(self, inputs, outputs, gradients):
        return [gradients[0] * self.scale]


x, y = pt.dscalar("x"), pt.dscalar("y")
before = Elemwise(Before())
PAIRS: dict[str, Callable[[], list[Variable]]] = {
    "slots": lambda: [Slotted(2.0)(x), Slotted(3.0)(x)],
    "order of a dictionary": lambda: [Chain("exp", "negative")(x), Chain("negative", "exp")(x)],
    "flags without a name": lambda: [Flagged(Flags(8))(x), Flagged(Flags(16))(x)],
    "what does not print": lambda: [Times(Whole(2))(x), Times(Whole(3))(x)],
    "attributes beside fields": lambda: [
        Configured(MoreSettings(2.0))(x),
        Configured(MoreSettings(3.0))(x),
    ],
    "operands of a class of its own": lambda: [before(x, y), before(y, x)],
    "another perform": lambda: [
        Performing([x], [x * 1.0], factor=factor)(y) for factor in (2.0, 3.0)
    ],
}


@pytest.mark.parametrize("case", PAIRS)
def test_what_computes_otherwise_is_not_the_same(case: str) -> None:
    one, other = PAIRS[case]()
    assert digest(([x, y], [one])) != digest(([x, y], [other]))
    graph = graph_of(one, other)
    work, _ = optimized(graph, "merge-equal")
    assert len(set(work.outputs)) == 2
    values = [np.asarray(value) for value in (0.5, 1.5)][: len(graph.inputs)]
    expected = evaluate(graph.inputs, graph.outputs, values)
    assert evaluate(work.inputs, work.outputs, values) == expected


def test_what_is_differentiated_otherwise_is_not_the_same_op() -> None:
    graph = graph_of(Scaled(scale=2.0)(x), Scaled(scale=3.0)(x))
    work, _ = optimized(graph, "merge-equal")
    slopes = [pytensor.grad(output, work.inputs[0]) for output in work.outputs]
    assert evaluate(work.inputs, slopes, [np.asarray(0.5)]) == [2.0, 3.0]
    pair = [([x], [Scaled(scale=scale)(x)]) for scale in (2.0, 3.0)]
    assert digest(pair[0]) == digest(pair[1])
    assert digest(pair[0], gradients=True) != digest(pair[1], gradients=True)
