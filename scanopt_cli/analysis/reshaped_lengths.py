"""Lengths of arrays whose axes were split, joined or given other lengths."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.analysis.affine import ONE, AffineExpr
from scanopt_cli.analysis.loop_lengths import KnownLengths


def reshaped_length(lengths: KnownLengths, node: Apply, axis: int) -> AffineExpr | None:
    """Return the length of a Reshape, a JoinDims or a SplitDims, ``None`` if it is not known."""
    length = asked_length(lengths, node, axis)
    # A length of -1 stands for whatever is left.
    return length if length is not None and lengths.provably_le(0, length) else None


def asked_length(lengths: KnownLengths, node: Apply, axis: int) -> AffineExpr | None:
    """Return the length that a node is to make, which may be -1."""
    op = node.op
    if not isinstance(op, Reshape | JoinDims | SplitDims):
        return None
    source = node.inputs[0]
    match op:
        case JoinDims(start_axis=start, n_axes=count):
            if axis == start:
                return _product([lengths.length_of(source, start + i) for i in range(count)])
            return lengths.length_of(source, axis if axis < start else axis + count - 1)
        case SplitDims(axis=start):
            more = node.outputs[0].type.ndim - source.type.ndim
            if not start <= axis <= start + more:
                return lengths.length_of(source, axis if axis < start else axis - more)
            axis -= start
    entry = _entry(node.inputs[1], axis)
    return None if entry is None else lengths.value_of(entry)


def _product(factors: list[AffineExpr]) -> AffineExpr | None:
    product = ONE
    for factor in factors:
        if factor.is_constant:
            product = product.scaled(factor.constant)
        elif product.is_constant:
            product = factor.scaled(product.constant)
        else:
            return None
    return product


def _entry(vector: Variable, place: int) -> Variable | None:
    """The number at a place of a vector, if it was made of numbers."""
    if isinstance(vector, TensorConstant):
        return pt.constant(np.asarray(vector.data[place]))
    node = vector.owner
    is_made = node is not None and isinstance(node.op, MakeVector)
    return node.inputs[place] if is_made else None
