"""Branches of steps, both of which are computed at all steps, of which one is chosen in each."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.levels import IfElse
from scanopt_cli.loop.costs import is_costly
from scanopt_cli.passes.loops_to_ops.outside import Outside
from scanopt_cli.passes.push_out.hoisting import is_total

_SHAPES = (Alloc, DimShuffle, MakeVector, Shape, Shape_i)


@dataclass(frozen=True, slots=True)
class Always:
    """What each step computes, whichever branches it takes.

    Attributes
    ----------
    nodes
        The nodes that each step runs.
    outside
        What stands outside of the loop for inputs of the body: what no step changes, and a row.
    lengths
        The lengths of arrays outside.
    """

    nodes: Set[Apply] = frozenset()
    outside: Mapping[Variable, Variable] = field(default_factory=dict)
    lengths: Lengths = field(default_factory=Lengths)

    def have_same_lengths(self, one: Variable, other: Variable) -> bool:
        """Whether two arrays of a step provably have the same lengths."""
        found = substituted([one, other], self.outside)
        shapes = [self.lengths.shape(array) for array in found]
        return shapes[0] == shapes[1]


def has_choice_for_all_steps(node: Apply, always: Always) -> bool:
    """Whether `choice_for_all_steps` takes a conditional, beside what steps ``always`` compute.

    Its branches are elementwise arithmetic that takes no longer than to read a number and raises no
    error, or one number that is filled in, and provably have the same lengths.
    """
    condition, *branches = node.inputs
    is_one = isinstance(node.op, IfElse) and len(branches) == 2
    if not is_one or not isinstance(condition.type, TensorType) or condition.type.ndim:
        return False
    are_cheap = all(_is_cheap(branch, always.nodes) for branch in branches)
    return are_cheap and always.have_same_lengths(*branches)


def _is_cheap(branch: Variable, always: Set[Apply]) -> bool:
    """Whether what a branch alone computes is cheap, and raises no error."""
    waiting, seen = [branch], set[Apply]()
    while waiting:
        node = waiting.pop().owner
        if node is None or node in always or node in seen:
            continue
        if not isinstance(node.op, (Elemwise, *_SHAPES)) or is_costly(node.op):
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
