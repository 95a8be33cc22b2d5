"""Multiply all rows of a sequence by a matrix before the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.vector_products import VectorProduct, vector_products
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code, Why


@dataclass(frozen=True)
class PushOutProducts(ScanPass):
    """Multiply the rows of a sequence by a loop-invariant matrix before the loop.

    A recurrent network multiplies its input by a matrix in each step: ``x_t @ W``, or ``V @ x_t``.
    With the ``x_t`` as the rows of X, these are the rows of ``X @ W`` and of ``X @ V.T``, each one
    matrix product.

    Legal cases:

    1. ``x_t @ W``, with ``x_t`` a row of a sequence and ``W`` a non-sequence, or its transpose.
    2. ``V @ x_t``, likewise.

    Preconditions: both are floats of one dtype, and neither axis of the matrix has length 1 by its
    type. The sequence is not a loop's trace that is read backwards, as gradients do: what the loop
    made of it in each step can be kept instead (``keep-values``). There is no stop condition, the
    loop is not batched, and no step works in place.

    The products are summed in a different order. They are kept for every step. If shapes do not
    fit, the result raises an error even if the loop runs no step.

    Out of scope: products of sequences of matrices, and of two sequences.
    """

    name: ClassVar[str] = "push-out-products"
    accepts_in_place: ClassVar[bool] = False

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a Scan that reads the products."""
        if view.batch_ndim:
            return None
        names = context.names(view)
        view.unfreeze()
        outer = {slot.inner_inputs[0]: slot.outer_input for slot in view.of_kind(SlotKind.NON_SEQ)}
        rows = {slot.inner_inputs[0]: slot for slot in view.of_kind(SlotKind.SEQ)}
        replaced: dict[Variable, Variable] = {}
        for product in vector_products(view.inner_outputs()):
            slot = rows.get(product.vector)
            if slot is None or product.factor not in outer:
                continue
            if view.is_while:
                context.missed(view, Code.PRODUCT_KEPT, Why.LOOP_STOPS, names[slot])
            elif not _is_read_backwards(slot.outer_input):
                context.passed(view, Code.PRODUCT_MOVED, names[slot])
                row = _products(view, product, slot, outer)
                replaced[product.node.outputs[0]] = product.replaced_by(row)
        if not replaced:
            return None
        view.set_inner_outputs(graph_replace(view.inner_outputs(), replaced, strict=False))
        return view.rebuild()


def _is_read_backwards(sequence: Any) -> bool:
    """Whether a sequence is a part of a Scan's trace, whose rows it reads from last to first."""
    steps = []
    while isinstance(sequence.owner_op, Subtensor):
        first, *_ = indices_of(sequence.owner)
        steps.append(number(first.step, 1) if isinstance(first, slice) else None)
        sequence = sequence.owner.inputs[0]
    is_trace = sequence.owner is not None and scan_op(sequence.owner) is not None
    return is_trace and any(step is not None and step < 0 for step in steps)


def _products(
    view: ScanView, product: VectorProduct, slot: Slot, outer: Mapping[Variable, Variable]
) -> Variable:
    """Add a sequence of the products of all rows, and return the row that a step reads."""
    matrix: Any
    (matrix,) = substituted([product.matrix], outer)
    rows: Any = slot.outer_input
    lengths = Lengths(view.n_steps)
    if lengths.length_of(rows) != lengths.steps:
        rows = rows[: view.n_steps]
    products = pt.dot(rows, matrix.T if product.is_column else matrix)
    row = products.type.clone(shape=products.type.shape[1:])()
    return view.add_input(SlotKind.SEQ, row, products)
