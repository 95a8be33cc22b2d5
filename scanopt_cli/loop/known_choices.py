"""What a choice selects, computed with the condition of the choice known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import EQ, Switch


def with_known_conditions(values: Sequence[Variable]) -> list[Variable]:
    """Return values as they are computed, but that each choice is made once on the way to a value.

    Of a value ``switch(c, x, y)``, ``x`` is computed where ``c`` holds: what it reads of another
    choice by ``c`` is what that selects then. So each entry of a small array that is changed at an
    index depends on itself alone.
    """
    found = []
    for value in values:
        node = value.owner
        if node is not None and isinstance(node.op, Switch):
            condition, one, other = node.inputs
            ways = _given(one, condition, 1), _given(other, condition, 2)
            if ways != (one, other):
                value = node.op.make_node(condition, *ways).outputs[0]
        found.append(value)
    return found


def _given(value: Variable, condition: Variable, way: int) -> Any:
    """Return a value computed where a condition selects the operand at ``way`` of its choices."""
    new: dict[Variable, Variable] = {}
    for node in toposort([value]):
        inputs = [new.get(v, v) for v in node.inputs]
        taken = _way(node.inputs[0], condition, way) if isinstance(node.op, Switch) else None
        if taken is not None:
            new[node.outputs[0]] = inputs[taken]
        elif any(v in new for v in node.inputs):
            made = node.op.make_node(*inputs).outputs
            new |= dict(zip(node.outputs, made, strict=True))
    return new.get(value, value)


def _way(condition: Variable, known: Variable, way: int) -> int | None:
    """Return which operand a condition selects where a known one selects that at ``way``."""
    if condition is known:
        return way
    one, other = _compared(condition), _compared(known)
    if way == 1 and one and other and one[0] is other[0] and one[1] != other[1]:
        return 2  # a number that equals one constant equals no other one
    return None


def _compared(condition: Variable) -> tuple[Variable, Any] | None:
    """Return a variable and the constant that a condition compares it with."""
    if not isinstance(condition.owner_op, EQ):
        return None
    variable, constant = condition.owner.inputs
    return (variable, constant.data) if isinstance(constant, Constant) else None
