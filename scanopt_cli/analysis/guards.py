"""Functions in a branch of a switch that excludes the operands where their derivative is NaN.

In ``switch(x > 0, sqrt(x), 0)``, the square root of 0 is computed and not selected. Its value does
no harm, but its derivative is infinite, and zero times infinity is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar import basic as ps
from pytensor.tensor import constant
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot

from scanopt_cli.analysis.value_ranges import entry_of_constant

# Functions of operand 0 whose derivative is infinite, or NaN, at some numbers.
_HAZARDS: Mapping[type[ps.ScalarOp], tuple[float, ...]] = {
    ps.Log: (0.0,),
    ps.Log2: (0.0,),
    ps.Log10: (0.0,),
    ps.Log1p: (-1.0,),
    ps.Sqrt: (0.0, -1.0),
    ps.Reciprocal: (0.0,),
    ps.ArcSin: (1.0, -1.0),
    ps.ArcCos: (1.0, -1.0),
    ps.ArcTanh: (1.0, -1.0),
    ps.ArcCosh: (1.0,),
}
_TRIED = (1.0, 0.5, 2.0, -0.5, -2.0, 10.0, -10.0, 1e3, -1e3, 1e-3, -1e-3)
"""Numbers of which one is likely to be selected."""
_FLAT = ps.Floor | ps.Ceil | ps.Trunc | ps.Sign | ps.RoundHalfToEven | ps.RoundHalfAwayFromZero
# A branch that is larger is not searched to its end.
_MOST_NODES = 200


@dataclass(frozen=True, slots=True)
class Guarded:
    """A node in a branch of a switch, and the operand from which a condition keeps it away.

    Attributes
    ----------
    switch, branch
        The switch, and at which of its inputs the branch is.
    node, position
        The function, and which of its inputs the operand is.
    condition
        The condition, of the shape of the operand.
    at
        A number of the operand that is not selected, at which the derivative is infinite or NaN.
    safe
        A number of the operand that may be selected, where the derivative is finite.
    """

    switch: Apply
    branch: int
    node: Apply
    position: int
    condition: Variable
    at: float
    safe: float

    @property
    def operand(self) -> Any:
        """What the function is computed of."""
        return self.node.inputs[self.position]

    def made_safe(self) -> Variable:
        """Return the switch, with a branch that is computed of the safe number if not selected."""
        kind = self.operand.type
        safe = constant(np.full((1,) * kind.ndim, self.safe, dtype=kind.dtype))
        parts = (self.operand, safe) if self.branch == 1 else (safe, self.operand)
        chosen = self.switch.op.make_node(self.condition, *parts)
        inputs = list(self.node.inputs)
        inputs[self.position] = chosen.outputs[0]
        again = self.node.op.make_node(*inputs)
        memo = dict(zip(self.node.outputs, again.outputs, strict=True))
        operands = list(self.switch.inputs)
        operands[self.branch] = _recomputed(operands[self.branch], memo)
        made: Variable = self.switch.op.make_node(*operands).outputs[0]
        return made


def guarded_operands(outputs: Sequence[Variable]) -> Iterator[Guarded]:
    """Yield the guarded operands between ``outputs`` and what they are computed of."""
    for node in io_toposort([], outputs):
        if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Switch):
            for branch in (1, 2):
                yield from _in_branch(node, branch)


def _in_branch(switch: Apply, branch: int) -> Iterator[Guarded]:
    # Each variable, with whether it is computed entry by entry from there to the branch.
    waiting = [(switch.inputs[branch], True)]
    seen: set[Variable] = set()
    while waiting and len(seen) < _MOST_NODES:
        variable, is_by_entry = waiting.pop()
        node = variable.owner
        if node is None or variable in seen or not _is_differentiable(node):
            continue
        seen.add(variable)
        for position, numbers in _hazards(node):
            found = _guarded(switch, branch, node, position, numbers, is_by_entry)
            if found is not None:
                yield found
        is_entry = is_by_entry and isinstance(node.op, Elemwise)
        waiting += [(part, is_entry) for part in node.inputs]


def _is_differentiable(node: Apply) -> bool:
    """Whether a cotangent passes a node on its way to a guarded operand."""
    if not str(getattr(node.outputs[0].type, "dtype", "")).startswith("float"):
        return False
    match node.op:
        case Elemwise(scalar_op=op):
            return not isinstance(op, ps.Switch | ps.Cast) and not isinstance(op, _FLAT)
        case DimShuffle() | CAReduce() | Dot():
            return True
    return False


def _hazards(node: Apply) -> Iterator[tuple[int, tuple[float, ...]]]:
    """Yield the operands of a node, and the numbers at which its derivative is not finite."""
    op = node.op.scalar_op if isinstance(node.op, Elemwise) else None
    if isinstance(op, ps.TrueDiv):
        yield 1, (0.0,)
    elif isinstance(op, ps.Pow):
        power = entry_of_constant(node.inputs[1])
        if power is not None and not (power >= 1 and power == round(power)) and power:
            yield 0, (*((0.0,) if power < 1 else ()), *((-1.0,) if power != round(power) else ()))
    elif op is not None and type(op) in _HAZARDS:
        yield 0, _HAZARDS[type(op)]


def _guarded(
    switch: Apply,
    branch: int,
    node: Apply,
    position: int,
    numbers: Sequence[float],
    is_by_entry: bool,
) -> Guarded | None:
    operand: Any = node.inputs[position]
    condition: Any = switch.inputs[0]
    if not operand.type.dtype.startswith("float"):
        return None
    if not operand.type.ndim:
        condition = _stripped(condition)
    elif not is_by_entry:
        return None
    if condition.type.broadcastable != operand.type.broadcastable:
        return None
    at = next((n for n in numbers if _selected(condition, operand, n) == 3 - branch), None)
    wild = (*numbers, 0.0)
    safe = next(
        (n for n in _TRIED if n not in wild and _selected(condition, operand, n) in (branch, None)),
        None,
    )
    if at is None or safe is None:
        return None
    return Guarded(switch, branch, node, position, condition, at, safe)


def _selected(condition: Variable, operand: Variable, number: float) -> int | None:
    """Return which branch is selected where an operand is ``number``, ``None`` if others decide."""
    with np.errstate(all="ignore"):
        value = _value(condition, operand, number)
    return None if value is None else 1 if value else 2


def _value(variable: Variable, operand: Variable, number: float) -> Any:
    """Return what a variable is if ``operand`` is ``number``, ``None`` if others decide.

    It is computed for one entry.
    """
    values: dict[Variable, Any] = {operand: np.float64(number)}
    difference = tuple(map(_stripped, difference_of(operand)))
    for node in io_toposort([operand], [variable]):
        value = None
        if isinstance(node.op, DimShuffle):
            value = _known(node.inputs[0], values)
        elif isinstance(node.op, Elemwise):
            value = _entry(node, [_known(v, values) for v in node.inputs], difference, number)
        values.update(dict.fromkeys(node.outputs, value))
    return _known(variable, values)


def _entry(
    node: Apply, parts: Sequence[Any], difference: tuple[Variable, ...], number: float
) -> Any:
    """Return an entry of elementwise arithmetic."""
    op = node.op.scalar_op
    if isinstance(op, ps.LogicalComparison) and difference:
        sides = tuple(map(_stripped, node.inputs))
        if sides == difference:
            return op.impl(np.float64(number), 0.0)
        if sides == difference[::-1]:
            return op.impl(0.0, np.float64(number))
    if isinstance(op, ps.AND) and any(part is not None and not part for part in parts):
        return False
    if isinstance(op, ps.OR) and any(part is not None and part for part in parts):
        return True
    if any(part is None for part in parts):
        return None
    try:
        return op.impl(*parts)
    except Exception:
        return None  # Python has no code for it, or not for these numbers


def difference_of(operand: Variable) -> tuple[Variable, ...]:
    """Return the two sides if an operand is a difference, else nothing."""
    node = operand.owner
    if (
        node is None
        or not isinstance(node.op, Elemwise)
        or not isinstance(node.op.scalar_op, ps.Sub)
    ):
        return ()
    return tuple(node.inputs)


def _known(variable: Variable, values: Mapping[Variable, Any]) -> Any:
    return values[variable] if variable in values else entry_of_constant(variable)


def _stripped(variable: Variable) -> Variable:
    """Return a variable without the axes of length 1 that are put around it."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        if not variable.owner.op.is_expand_dims:
            break
        variable = variable.owner.inputs[0]
    return variable


def _recomputed(variable: Variable, memo: dict[Variable, Variable]) -> Variable:
    """Return a variable computed of others; what does not depend on them stays."""
    changed = dict(memo)
    for node in io_toposort(list(memo), [variable]):
        if not changed.keys().isdisjoint(node.inputs):
            again = node.clone_with_new_inputs([changed.get(v, v) for v in node.inputs])
            changed.update(zip(node.outputs, again.outputs, strict=True))
    return changed.get(variable, variable)
