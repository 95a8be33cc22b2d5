"""Multiply all rows of a sequence by a matrix before the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import (
    add_rows,
    invariant_inputs,
    is_read_backwards,
    step_rows,
)
from scanopt_cli.analysis.vector_products import VectorProduct, vector_products
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Why


@dataclass(frozen=True)
class PushOutProducts(AnyLoopPass):
    """Multiply the rows of a sequence by a loop-invariant matrix before the loop.

    A recurrent network multiplies its input by a matrix in each step: ``x_t @ W``, or ``V @ x_t``.
    With the ``x_t`` as the rows of X, these are the rows of ``X @ W`` and of ``X @ V.T``, each one
    matrix product. It takes Scans and TracedLoops, whose steps read rows of constants by the index.

    Legal cases:

    1. ``x_t @ W``, with ``x_t`` a row of a sequence and ``W`` a non-sequence, or its transpose.
    2. ``V @ x_t``, likewise.

    Preconditions: both are floats of one dtype, and neither axis of the matrix has length 1 by its
    type. The sequence is not a loop's trace that is read backwards, as gradients do: what the loop
    made of it in each step can be kept instead (``keep-values``), nor is it computed of a Scan's
    trace of arrays, unless the loop provably runs a step: of no steps, a Scan returns a trace of
    other lengths. There is no stop condition, the
    loop is not batched, and no step works in place.

    The products are summed in a different order. They are kept for every step. If shapes do not
    fit, the result raises an error even if the loop runs no step.

    Out of scope: products of sequences of matrices, and of two sequences.
    """

    name: ClassVar[str] = "push-out-products"
    accepts_in_place: ClassVar[bool] = False
    accepts_batched: ClassVar[bool] = False

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop that reads the products."""
        names = context.names(view)
        view.unfreeze()
        outer, rows, lengths = invariant_inputs(view), step_rows(view), Lengths(view.n_steps)
        replaced: dict[Variable, Variable] = {}
        for product in vector_products(view.inner_outputs()):
            found = rows.get(product.vector)
            if found is None or product.factor not in outer:
                continue
            if view.is_while:
                context.missed(view, Code.PRODUCT_KEPT, Why.LOOP_STOPS, names[found.slot])
            elif isinstance(view, LoopView) and not found.is_there(lengths):
                why = Why.SEQUENCE_LENGTH
                context.missed(view, Code.PRODUCT_KEPT, why, names[found.slot])
            elif not found.keeps_shape(lengths):
                why = Why.TRACE_OF_NO_STEPS
                context.missed(view, Code.PRODUCT_KEPT, why, names[found.slot])
            elif not is_read_backwards(found.slot.outer_input):
                context.passed(view, Code.PRODUCT_MOVED, names[found.slot])
                (matrix,) = substituted([product.matrix], outer)
                row = add_rows(view, _products(product, found.at_all_steps(view, lengths), matrix))
                replaced[product.node.outputs[0]] = product.replaced_by(row)
        if not replaced:
            return None
        view.set_inner_outputs(graph_replace(view.inner_outputs(), replaced, strict=False))
        return view.rebuild()


def _products(product: VectorProduct, rows: Any, matrix: Any) -> Any:
    """Return the products of all rows, given the matrix outside."""
    return pt.dot(rows, matrix.T if product.is_column else matrix)
