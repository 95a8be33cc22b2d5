"""What each step adds to a state, or multiplies it by."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.analysis.lengths import is_integer
from scanopt_cli.analysis.value_ranges import Range, ValueRanges

NEUTRAL = {ps.Add: Range(0, 0), ps.Mul: Range(1, 1)}
"""What leaves a state as it is."""


def change(
    update: Variable, state: Variable, ranges: ValueRanges, kind: type[ps.ScalarOp]
) -> Range | None:
    """Return what is added to a state (or what it is multiplied by), ``None`` if it is not known.

    ``kind`` is Add or Mul. A switch may keep the state.
    """
    if update is state:
        return NEUTRAL[kind]
    node = update.owner
    if node is None or not isinstance(node.op, Elemwise):
        return None
    match node.op.scalar_op:
        # A float may lose what is added when it becomes an integer.
        case ps.Cast() if is_integer(node.inputs[0]) == is_integer(update):
            return change(node.inputs[0], state, ranges, kind)
        case ps.Switch() if state not in ancestors(node.inputs[:1]):
            parts = [change(v, state, ranges, kind) for v in node.inputs[1:]]
            known = [part for part in parts if part is not None]
            return reduce(or_, known) if len(known) == len(parts) else None
        case ps.Add() | ps.Mul() as op if isinstance(op, kind):
            holding = [v for v in node.inputs if state in ancestors([v])]
            inner = change(holding[0], state, ranges, kind) if len(holding) == 1 else None
            if inner is None:
                return None
            for other in node.inputs:
                if other is not holding[0]:
                    part = ranges.of(other)
                    inner = inner + part if kind is ps.Add else inner * part
            return inner
        case ps.Sub() if kind is ps.Add and state not in ancestors(node.inputs[1:]):
            inner = change(node.inputs[0], state, ranges, kind)
            return None if inner is None else inner + -ranges.of(node.inputs[1])
    return None
