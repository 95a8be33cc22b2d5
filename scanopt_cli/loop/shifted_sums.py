"""Logarithms of sums of exponentials that cannot overflow, in the bodies of loops.

PyTensor computes ``log(exp(x) + exp(y))`` as ``log(exp(x - m) + exp(y - m)) + m``, with ``m`` the
larger of both. When it rewrites a step that has this form already, as `unroll-small` makes it, it
finds the same sum inside, and subtracts a maximum, which is 0, again.
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import walk
from pytensor.scalar.basic import (
    Add,
    Exp,
    IsInf,
    Log,
    Maximum,
    Sub,
    Switch,
    upgrade_to_float,
)
from pytensor.tensor.elemwise import Elemwise


class ShiftedLog(Log):
    """The logarithm of a sum of exponentials, of which the largest is 1."""


shifted_log = Elemwise(ShiftedLog(upgrade_to_float, name="log"))


def protect_log_sums(graph: FunctionGraph) -> None:
    """Use `ShiftedLog` where PyTensor would subtract a maximum again."""
    for node in graph.toposort():
        if _is(node, Log) and _is_shifted(node.inputs[0]):
            made: Any = shifted_log(*node.inputs)
            graph.replace(node.outputs[0], made, reason="protect_log_sums")


def unprotect_log_sums(graph: FunctionGraph) -> None:
    """Undo `protect_log_sums`."""
    for node in graph.toposort():
        if node.op == shifted_log:
            made: Any = pt.log(*node.inputs)
            graph.replace(node.outputs[0], made, reason="unprotect_log_sums")


def _is_shifted(total: Variable) -> bool:
    """Whether a variable is a sum of ``exp(x - m)``, with ``m`` the largest of all ``x``."""
    if not _is(total.owner, Add):
        return False
    arguments = [term.owner.inputs[0] for term in total.owner.inputs if _is(term.owner, Exp)]
    if len(arguments) < len(total.owner.inputs) or not all(_is(v.owner, Sub) for v in arguments):
        return False
    shifts = {v.owner.inputs[1] for v in arguments}
    return len(shifts) == 1 and {v.owner.inputs[0] for v in arguments} == _largest_of(shifts.pop())


def _largest_of(shift: Variable) -> set[Variable]:
    """Return the variables whose maximum a shift is, or 0 if that is infinite."""
    if not _is(shift.owner, Switch):
        return set()
    is_infinite, _, largest = shift.owner.inputs
    if not _is(is_infinite.owner, IsInf) or is_infinite.owner.inputs[0] is not largest:
        return set()
    operands = walk([largest], lambda v: v.owner.inputs if _is(v.owner, Maximum) else ())
    return {v for v in operands if not _is(v.owner, Maximum)}


def _is(node: Any, kind: type) -> bool:
    return node is not None and isinstance(node.op, Elemwise) and type(node.op.scalar_op) is kind
