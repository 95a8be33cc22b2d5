"""The body of a loop: the graph of one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.scalar.basic import EQ, ScalarType
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import eq
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.ir.interning import check_kept

type Symbolic = Any
"""A variable that is computed with; PyTensor does not type the arithmetic of its variables."""


class HasBody(Protocol):
    """What has a frozen body, as the operators of loops do."""

    fgraph: FrozenFunctionGraph
    n_states: int
    is_while: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The graph of one step, as variables that belong to no other graph.

    It maps ``(index, states…, constants…)`` to ``(next states…, traced values…, continue?)``.
    ``index`` counts the steps from 0; ``condition``, if there is one, is false in the last step.
    """

    index: Symbolic
    states: Sequence[Symbolic] = ()
    constants: Sequence[Symbolic] = ()
    next_states: Sequence[Symbolic] = ()
    traced: Sequence[Symbolic] = ()
    condition: Symbolic | None = None

    @classmethod
    def of(cls, graph: FrozenFunctionGraph, n_states: int, is_while: bool) -> Body:
        """Return a copy of a frozen body, to compute with."""
        copy = graph.unfreeze()
        index, *inputs = copy.inputs
        outputs = list(copy.outputs)
        condition = outputs.pop() if is_while else None
        return cls(
            index=index,
            states=inputs[:n_states],
            constants=inputs[n_states:],
            next_states=outputs[:n_states],
            traced=outputs[n_states:],
            condition=condition,
        )

    @property
    def inputs(self) -> list[Symbolic]:
        """The inputs, in the order in which an operator holds them."""
        return [self.index, *self.states, *self.constants]

    @property
    def outputs(self) -> list[Symbolic]:
        """The outputs, in the order in which an operator holds them."""
        condition = [] if self.condition is None else [self.condition]
        return [*self.next_states, *self.traced, *condition]

    def freeze(self) -> FrozenFunctionGraph:
        """Return the body as an operator holds it.

        Raises
        ------
        TypeError
            If the index, a state or the condition has a type that it cannot have.
        ValueError
            If the body reads a variable that is none of its inputs.
        """
        self.check_types()
        self._check_inputs()
        graph = FrozenFunctionGraph.from_io(self.inputs, self.outputs)
        check_kept(self.outputs, graph, "a loop")
        return graph

    def check_types(self) -> None:
        """Check the types of the index, the states and the condition; errors as of `freeze`."""
        if not _is_number(self.index, "int64"):
            raise TypeError(
                f"the index of a loop is an int64 of no dimensions, not {self.index.type}"
            )
        if len(self.states) != len(self.next_states):
            raise ValueError(
                f"a loop of {len(self.states)} states has {len(self.next_states)} next states"
            )
        for position, (old, new) in enumerate(zip(self.states, self.next_states, strict=True)):
            if not old.type.is_super(new.type):
                name = old.name or f"state {position}"
                raise TypeError(f"{name} is of type {old.type}; a step makes it {new.type}")
        if self.condition is not None and not _is_number(self.condition, "bool"):
            raise TypeError(
                f"the condition of a loop is a bool of no dimensions, not {self.condition.type}"
            )

    def _check_inputs(self) -> None:
        declared = set(self.inputs)
        for variable in explicit_graph_inputs(self.outputs):
            if variable not in declared:
                raise ValueError(
                    f"the body of a loop reads {variable}, which is none of its inputs; "
                    "pass it as a constant of the loop"
                )


def negation(condition: Variable) -> Symbolic:
    """Return the condition to stop, given that to go on, or the reverse."""
    node = condition.owner
    if node is not None and isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, EQ):
        for one, other in (node.inputs, node.inputs[::-1]):
            if one.type.dtype == "bool" and isinstance(other, Constant) and not other.data.any():
                return one
    return eq(condition, 0)


def _is_number(variable: Variable, dtype: str) -> bool:
    kind = variable.type
    if isinstance(kind, ScalarType):
        return bool(kind.dtype == dtype)
    return isinstance(kind, DenseTensorType) and kind.dtype == dtype and kind.ndim == 0
