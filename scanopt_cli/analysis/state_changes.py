"""What each step adds to a state, or multiplies it by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.analysis.dependence import dependent_nodes
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
    # Each node once: the branches of switches in switches may meet again.
    changes: dict[Variable, Range | None] = {state: NEUTRAL[kind]}
    for node in dependent_nodes({state}, [update]):
        changes.update(dict.fromkeys(node.outputs))
        if isinstance(node.op, Elemwise):
            changes[node.outputs[0]] = _change(node, changes, ranges, kind)
    return changes.get(update)


def _change(
    node: Any,
    changes: Mapping[Variable, Range | None],
    ranges: ValueRanges,
    kind: type[ps.ScalarOp],
) -> Range | None:
    """Return the change that a node makes, given the ``changes`` of what depends on the state."""
    (first, *others), (made,) = node.inputs, node.outputs
    match node.op.scalar_op:
        # A float may lose what is added when it becomes an integer; a boolean counts no further.
        case ps.Cast() if is_integer(first) == is_integer(made) and made.type.dtype != "bool":
            return changes[first]
        case ps.Switch() if first not in changes:
            parts = [changes.get(v) for v in others]
            known = [part for part in parts if part is not None]
            return reduce(or_, known) if len(known) == len(parts) else None
        case ps.Add() | ps.Mul() as op if isinstance(op, kind):
            holding = [place for place, v in enumerate(node.inputs) if v in changes]
            found = changes[node.inputs[holding[0]]] if len(holding) == 1 else None
            for place, other in enumerate(node.inputs):
                if found is not None and place not in holding:
                    part = ranges.of(other)
                    found = found + part if kind is ps.Add else found * part
            return found
        case ps.Sub() if kind is ps.Add and others[0] not in changes:
            found = changes[first]
            return None if found is None else found + -ranges.of(others[0])
    return None
