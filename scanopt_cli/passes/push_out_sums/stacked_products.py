"""Products of the matrices of two sequences, all added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot

from scanopt_cli.analysis.accumulators import Term
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import step_rows
from scanopt_cli.ir.slots import SlotView


@dataclass(frozen=True, slots=True)
class StackedProduct:
    """The sum of ``left[t] @ right[t]`` over all steps, subtracted if ``is_negative``.

    The axes of both are the step, and those of a matrix.
    """

    left: Any
    right: Any
    is_negative: bool

    def total(self) -> Any:
        """Return the sum, as one product of matrices."""
        steps, columns, inner = self.left.shape[0], self.right.shape[2], self.left.shape[2]
        # In an order in which a transposed entry needs no copy.
        left = self.left.dimshuffle(0, 2, 1).reshape((steps * inner, self.left.shape[1]))
        total = pt.dot(left.T, self.right.reshape((steps * inner, columns)))
        return -total if self.is_negative else total


def stacked_product(view: SlotView, term: Term) -> StackedProduct | None:
    """Return a term that is a product of matrices of two sequences, at all steps."""
    node = term.value.owner
    if node is None or not isinstance(node.op, Dot):
        return None
    left, right = (_at_all_steps(view, factor) for factor in node.inputs)
    if left is None or right is None:
        return None
    return StackedProduct(left, right, term.is_negative)


def _at_all_steps(view: SlotView, factor: Variable) -> Any:
    """Return a matrix of a step at all steps, if it is the entry of a sequence, or its transpose.

    The sequence must provably have an entry for each step, and no known axis of length 1.
    """
    is_transposed = False
    while isinstance(factor.owner_op, DimShuffle) and factor.owner_op.new_order == (1, 0):
        factor, is_transposed = factor.owner.inputs[0], not is_transposed
    row, lengths = step_rows(view).get(factor), Lengths(view.n_steps)
    if row is None or row.slot.outer_input.type.ndim != 3:
        return None
    if not row.is_there_alone(lengths):
        return None
    entries = row.at_all_steps(view, lengths)
    return entries.dimshuffle(0, 2, 1) if is_transposed else entries
