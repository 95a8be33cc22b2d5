"""Ops as other packages write them."""

from __future__ import annotations

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op


class Scaled(Op):
    """An Op that is what its properties are."""

    __props__ = ("factor", "labels")

    def __init__(self, factor: float, *, labels: tuple[str, ...] = ()) -> None:
        self.factor = factor
        self.labels = labels

    def make_node(self, variable: Variable) -> Apply:
        return Apply(self, [variable], [variable.type()])

    def perform(self, node: Apply, inputs: list, output_storage: list) -> None:
        output_storage[0][0] = inputs[0] * self.factor


class Opaque(Op):
    """An Op without `__props__`: it is what its state is."""

    def __init__(self, state: object) -> None:
        self.state = state

    def make_node(self, variable: Variable) -> Apply:
        return Apply(self, [variable], [variable.type()])

    def perform(self, node: Apply, inputs: list, output_storage: list) -> None:
        output_storage[0][0] = inputs[0]
