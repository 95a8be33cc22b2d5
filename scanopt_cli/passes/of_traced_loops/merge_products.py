"""Multiply a vector by several matrices in one product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.vector_products import VectorProduct, vector_products
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class MergeProducts(TracedLoopPass):
    """Multiply a vector by the rows of several constant matrices at once.

    The gates of a recurrent network are products of one state and a matrix each: ``U @ h``,
    ``V @ h``. With the rows of V below those of U, they are the parts of one product, which takes
    less time if the matrices are small or large.

    Legal cases:

    1. ``U @ h``, ``V @ h``, and so on, with constants of a TracedLoop or their transposes for
       ``U`` and ``V``.
    2. ``h @ U``, likewise.

    Preconditions: all are floats of one dtype, and neither axis of a matrix has length 1 by its
    type; no step works in place.

    The matrices are joined before the loop. If their shapes do not fit, the result raises an error
    even if the loop runs no step. The products may round differently.

    Out of scope: products that are added up, as those of gradients are.
    """

    name: ClassVar[str] = "merge-products"
    accepts_in_place: ClassVar[bool] = False

    def rewrite(self, view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop with fewer products."""
        view.unfreeze()
        is_changed = False
        # One vector after the other: it may be made of the products of another.
        while products := _products_of_one_vector(view):
            is_changed = True
            context.passed(view, Code.PRODUCTS_MERGED, count=len(products))
            parts = zip(products, _parts(view, products), strict=True)
            replaced = {p.node.outputs[0]: p.replaced_by(part) for p, part in parts}
            view.set_inner_outputs(substituted(view.inner_outputs(), replaced))
        return view.rebuild() if is_changed else None


def _products_of_one_vector(view: LoopView) -> list[VectorProduct]:
    """Return several products of a vector and constants of a loop, none if there are none."""
    constants = {slot.inner_inputs[0] for slot in view.of_kind(SlotKind.CONSTANT)}
    found: dict[Variable, list[VectorProduct]] = {}
    for product in vector_products(view.inner_outputs()):
        if product.factor in constants:
            found.setdefault(product.vector, []).append(product)
    return next((products for products in found.values() if len(products) > 1), [])


def _parts(view: LoopView, products: Sequence[VectorProduct]) -> list[Any]:
    """Let the loop read the matrices as one, and return the parts of its product."""
    outer = {s.inner_inputs[0]: s.outer_input for s in view.of_kind(SlotKind.CONSTANT)}
    whole: list[Any] = substituted([product.matrix for product in products], outer)
    rows = [
        matrix if product.is_column else matrix.T
        for product, matrix in zip(products, whole, strict=True)
    ]
    total = pt.dot(_constant(view, pt.concatenate(rows, axis=0)), products[0].vector)
    parts, end = [], pt.constant(0, dtype="int64")
    for matrix in rows:
        start, end = end, end + matrix.shape[0]
        parts.append(total[_bound(view, start) : _bound(view, end)])
    return parts


def _bound(view: LoopView, length: Any) -> Any:
    """Return a bound of a part as a step reads it: a number, if it is known."""
    found = Lengths(view.n_steps).value_of(length)
    return found.constant if found.is_constant else _constant(view, length)


def _constant(view: LoopView, value: Any) -> Any:
    """Return what a step reads of a new constant of the loop."""
    return view.add_input(SlotKind.CONSTANT, value.type(), value)
