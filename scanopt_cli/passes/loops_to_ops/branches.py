"""Branches of steps, both of which are computed at all steps, of which one is chosen in each."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.levels import IfElse
from scanopt_cli.loop.costs import is_costly
from scanopt_cli.passes.loops_to_ops.outside import Outside
from scanopt_cli.passes.push_out.hoisting import is_total


def has_choice_for_all_steps(node: Apply, always: set[Apply]) -> bool:
    """Whether `choice_for_all_steps` takes a conditional, beside nodes that steps ``always`` run.

    Its branches are elementwise arithmetic that takes no longer than to read a number and raises no
    error, and provably have the same lengths.
    """
    condition, *branches = node.inputs
    is_one = isinstance(node.op, IfElse) and len(branches) == 2
    if not is_one or getattr(condition.type, "ndim", 1):
        return False
    lengths = Lengths()
    one, other = (lengths.shape(branch) for branch in branches)
    return one == other and all(_is_cheap(branch, always) for branch in branches)


def _is_cheap(branch: Variable, always: set[Apply]) -> bool:
    """Whether what a branch alone computes is cheap, and raises no error."""
    waiting, seen = [branch], set[Apply]()
    while waiting:
        node = waiting.pop().owner
        if node is None or node in always or node in seen:
            continue
        if not isinstance(node.op, Elemwise | DimShuffle) or is_costly(node.op):
            return False
        if not is_total(node):
            return False
        seen.add(node)
        waiting += [v for v in node.inputs if not isinstance(v, Constant)]
    return True


def choice_for_all_steps(node: Apply, outside: Outside) -> Any:
    """Return what a conditional chooses at all steps."""
    condition, one, other = node.inputs
    ndim = one.type.ndim
    is_true: Any = pt.neq(outside.of(condition), 0)
    if condition in outside.varying:
        is_true = is_true.dimshuffle(0, *["x"] * ndim)
    return pt.switch(is_true, outside.rows(one), outside.rows(other))
