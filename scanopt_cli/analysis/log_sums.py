"""Logarithms of sums of exponentials, which overflow where their value does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import zero_grad
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Max, Sum
from pytensor.tensor.special import logaddexp, logsumexp

from scanopt_cli.analysis.value_ranges import ValueRanges

_MOST_TERMS = 1000
"""Of how many exponentials a sum may be; one that is added to itself has twice as many."""

type _Known = dict[Variable, tuple[Variable, ...] | None]


@dataclass(frozen=True, slots=True)
class LogSum:
    """``log(sum(exp(x)))``, or the logarithm of a sum of weighted exponentials.

    Attributes
    ----------
    node
        The logarithm.
    total
        The sum, without axes of length 1 that stand around it.
    exponents
        What the exponentials are taken of.
    """

    node: Apply
    total: Variable
    exponents: tuple[Variable, ...]

    @property
    def is_plain(self) -> bool:
        """Whether it is a Sum of one exponential, of which PyTensor also knows the gradient."""
        node = self.total.owner
        return (
            node is not None and isinstance(node.op, Sum) and _exponent(node.inputs[0]) is not None
        )

    def may_overflow(self, ranges: ValueRanges) -> bool:
        """Whether an exponent is not known to be of a size that its dtype takes.

        One from which a maximum was subtracted already is.
        """
        if any(map(_is_shifted, self.exponents)):
            return False
        info = np.finfo(self.total.type.dtype)
        low, high = np.log(float(info.tiny)), np.log(float(info.max))
        # Sums of millions of terms still fit.
        found = [ranges.of(variable) for variable in self.exponents]
        return any(each.high > high - 20 or each.low < low for each in found)

    def stable(self) -> Variable:
        """Return the same number, computed with the maximum of the exponents subtracted."""
        old: Any = self.node.outputs[0]
        node = self.total.owner
        assert node is not None
        if self.is_plain:
            new: Any = logsumexp(self.exponents[0], axis=node.op.axis)
        elif all(_exponent(part) is not None for part in node.inputs) and _is_add(node):
            new = logaddexp(*self.exponents)
        else:
            known: _Known = {}
            most = _maximum(self.total, known)
            # Whatever is subtracted, the value and all derivatives stay the same.
            most = zero_grad(pt.switch(pt.isinf(most), pt.zeros_like(most), most))
            new = pt.log(_shifted(self.total, most, known)) + most
        if self.node.inputs[0] is not self.total:
            around = self.node.inputs[0].owner
            assert around is not None
            new = around.op(new)
        return pt.cast(new, old.type.dtype)


def log_sums(outputs: Sequence[Variable]) -> Iterator[LogSum]:
    """Yield the logarithms of sums of exponentials that ``outputs`` are computed of."""
    known: _Known = {}
    for node in io_toposort([], outputs):
        if not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, ps.Log):
            continue
        total = node.inputs[0]
        if total.owner is not None and isinstance(total.owner.op, DimShuffle):
            total = total.owner.inputs[0]
        is_sum = total.owner is not None and (
            isinstance(total.owner.op, Sum) or _is_add(total.owner)
        )
        exponents = _exponents(total, known) if is_sum else None
        if exponents:
            yield LogSum(node, total, exponents)


def _exponent(variable: Variable) -> Variable | None:
    """Return what a variable is the exponential of, with the axes of length 1 put around it."""
    node = variable.owner
    if node is not None and isinstance(node.op, DimShuffle) and node.op.is_expand_dims:
        inner = _exponent(node.inputs[0])
        return None if inner is None else node.op.make_node(inner).outputs[0]
    if (
        node is None
        or not isinstance(node.op, Elemwise)
        or not isinstance(node.op.scalar_op, ps.Exp)
    ):
        return None
    found: Variable = node.inputs[0]
    is_float = str(found.type.dtype).startswith("float") and found.type.dtype == variable.type.dtype
    return found if is_float else None


def _is_add(node: Apply) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Add)


def _weighted(node: Apply, known: _Known) -> tuple[Variable, list[Variable]] | None:
    """Return the part of a product that holds an exponential, and its weights."""
    if not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, ps.Mul):
        return None
    parts = [v for v in node.inputs if _exponents(v, known)]
    if len(parts) != 1 or parts[0].type.dtype != node.outputs[0].type.dtype:
        return None
    return parts[0], [v for v in node.inputs if v is not parts[0]]


def _exponents(variable: Variable, known: _Known) -> tuple[Variable, ...] | None:
    """Return the exponents of a sum of weighted exponentials.

    ``None`` if it has other terms, or very many. ``known`` keeps what was found.
    """
    if variable not in known:
        found = _exponents_of(variable, known)
        known[variable] = None if found is None or len(found) > _MOST_TERMS else found
    return known[variable]


def _exponents_of(variable: Variable, known: _Known) -> tuple[Variable, ...] | None:
    if (exponent := _exponent(variable)) is not None:
        return (exponent,)
    node = variable.owner
    if node is None:
        return None
    if isinstance(node.op, Sum) and node.outputs[0].type.dtype == node.inputs[0].type.dtype:
        return _exponents(node.inputs[0], known)
    if _is_add(node):
        found = [_exponents(part, known) for part in node.inputs]
        terms = [part for part in found if part is not None]
        return sum(terms, ()) if len(terms) == len(found) else None
    weighted = _weighted(node, known)
    return None if weighted is None else _exponents(weighted[0], known)


def _maximum(variable: Any, known: _Known) -> Any:
    """Return the largest exponent of each sum, of the shape of the sum or one that broadcasts.

    One whose weight is 0 does not count.
    """
    if (exponent := _exponent(variable)) is not None:
        return exponent
    node = variable.owner
    if isinstance(node.op, Sum):
        inner = _maximum(node.inputs[0], known)
        return inner.max(axis=node.op.axis)
    if _is_add(node):
        return reduce(pt.maximum, [_maximum(part, known) for part in node.inputs])
    weighted = _weighted(node, known)
    assert weighted is not None
    part, weights = weighted
    counts: Any = reduce(pt.and_, [pt.neq(weight, 0) for weight in weights])
    return pt.switch(counts, _maximum(part, known), -np.inf)


def _shifted(variable: Any, most: Any, known: _Known, limit: float | None = None) -> Any:
    """Return a sum of weighted exponentials, of exponents from which ``most`` is subtracted.

    None is larger than ``limit``, if there is one: one whose weight is 0 may be.
    """
    if (exponent := _exponent(variable)) is not None:
        shifted = exponent - most
        return pt.exp(shifted if limit is None else pt.minimum(shifted, limit))
    node = variable.owner
    if isinstance(node.op, Sum):
        axes = range(node.inputs[0].type.ndim) if node.op.axis is None else node.op.axis
        return node.op(_shifted(node.inputs[0], pt.expand_dims(most, tuple(axes)), known, limit))
    if _is_add(node):
        return pt.add(*(_shifted(part, most, known, limit) for part in node.inputs))
    weighted = _weighted(node, known)
    assert weighted is not None
    part, weights = weighted
    largest = np.floor(np.log(np.finfo(part.type.dtype).max))
    return pt.mul(_shifted(part, most, known, float(largest)), *weights)


def _core(variable: Variable) -> Variable:
    """Return what a variable is without the axes of length 1 that were put around it."""
    node = variable.owner
    is_expanded = node is not None and isinstance(node.op, DimShuffle) and node.op.is_expand_dims
    return node.inputs[0] if is_expanded else variable


def _is_shifted(exponent: Variable) -> bool:
    """Whether a maximum is subtracted from an exponent, which may be bounded."""
    node = exponent.owner
    if node is None or not isinstance(node.op, Elemwise):
        return False
    if isinstance(node.op.scalar_op, ps.ScalarMinimum):
        bounded = [v for v in node.inputs if not isinstance(_core(v), Constant)]
        return len(bounded) == 1 < len(node.inputs) and _is_shifted(bounded[0])
    if not isinstance(node.op.scalar_op, ps.Sub):
        return False
    return any(
        isinstance(v.owner.op, Max)
        or (isinstance(v.owner.op, Elemwise) and isinstance(v.owner.op.scalar_op, ps.ScalarMaximum))
        for v in ancestors(node.inputs[1:])
        if v.owner is not None
    )
