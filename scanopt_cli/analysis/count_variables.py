"""Writes affine expressions back into a graph as scalars, and reads trip counts as scalars."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.elemwise import DimShuffle

from scanopt_cli.analysis.affine import AffineExpr, Atom
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.slots import SlotView

_LIMIT = 1 << 63


def as_count(form: AffineExpr) -> Any:
    """Return ``form`` as an int64 scalar.

    Return ``None`` if an atom is not a scalar (it can differ between the entries of a batch), or if
    the constant or a coefficient does not fit in 64 bits.
    """
    numbers = (form.constant, *(factor for _, factor in form.terms))
    if any(not -_LIMIT <= number < _LIMIT for number in numbers):
        return None
    count: Any = None
    for atom, factor in sorted(form.terms, key=lambda term: str(term[0])):
        quantity = _quantity(atom)
        if quantity is None:
            return None
        term = quantity if factor == 1 else quantity * factor
        count = term if count is None else count + term
    if count is None:
        return pt.constant(form.constant, dtype="int64")
    return count + form.constant if form.constant else count


def scalar_steps(view: SlotView) -> Any:
    """Return the trip count as one scalar, ``None`` if it can differ between entries of a batch."""
    steps = view.n_steps
    if not view.batch_ndim:
        return steps
    node = steps.owner
    if node is not None and isinstance(node.op, DimShuffle) and node.inputs[0].type.ndim == 0:
        return node.inputs[0]
    return as_count(Lengths(steps).value_of(steps))


def _quantity(atom: Atom) -> Any:
    variable: Any = atom.variable
    if atom.axis is not None:
        return variable.shape[atom.axis]
    if isinstance(variable.type, ScalarType):
        variable = pt.tensor_from_scalar(variable)
    if variable.type.ndim:
        return None
    return variable if variable.type.dtype == "int64" else variable.astype("int64")
