"""Value numbers: two values of one number are equal, whatever the inputs are.

Value numbering, as of Alpern, Wegman and Zadeck (1988), with sums and products in a normal form in
which neither the order of operands nor that of operations counts. Axes of length 1 do not count
either: a column of a matrix has the number of the vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.scalar import basic as scalars
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot

from scanopt_cli.analysis.matrix_ops import MATRIX_OPS
from scanopt_cli.ir.inner_graphs import core_op

type Along = tuple[int, ...]
"""For each axis of an operand, the axis of the result that it lies along.

Axes of length 1 are counted on neither side. A column lies along ``(0,)`` where it is added to a
matrix.
"""
type Terms = Counter[tuple[int, Along, int]]
"""The terms of a sum, each with its sign, 1 or -1, and how often it is there."""
type Factors = Counter[tuple[int, Along, int]]
"""The factors of a product, each with its exponent, 1 or -1, and how often it is there."""


def non_unit_axes(variable: Any) -> list[int]:
    """Return the axes of an array that are not known to be of length 1."""
    return [i for i, n in enumerate(variable.type.shape) if n != 1]


@dataclass(frozen=True, slots=True)
class _SumForm:
    terms: frozenset[Any]


@dataclass(frozen=True, slots=True)
class _ProductForm:
    factors: frozenset[Any]
    is_negative: bool


@dataclass(slots=True)
class ValueNumbers:
    """A table of the values that were met."""

    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _forms: list[Any] = field(default_factory=list)

    def opaque(self, *key: Hashable) -> int:
        """Return the number of a value that is not looked into, by what identifies it."""
        return self._numbered(key)

    def literal(self, constant: Constant) -> int:
        """Return the number of a constant array."""
        data = np.squeeze(constant.data)
        is_float = not data.ndim and data.dtype == "float64"
        if is_float and data != 0 and not np.isnan(data):
            return self._numbered(data.item())
        return self._numbered((data.dtype.str, data.shape, data.tobytes()))

    def computed(self, output: Any, operands: Sequence[int]) -> int | None:
        """Return the number of what a node computes, ``None`` for an Op without a rule."""
        node, op = output.owner, output.owner.op
        if isinstance(op, DimShuffle):
            axes: list[Any] = [*non_unit_axes(node.inputs[0])]
            order = tuple(axes.index(op.new_order[i]) for i in non_unit_axes(output))
            is_kept = order == tuple(sorted(order))
            return operands[0] if is_kept else self._numbered(("axes", order, operands[0]))
        if isinstance(core_op(op), (Dot, *MATRIX_OPS)):
            pattern = tuple(tuple(n == 1 for n in v.type.shape) for v in node.inputs)
            return self._numbered((op, output.index, pattern, *operands))
        if isinstance(op, Elemwise):
            positions = {axis: i for i, axis in enumerate(non_unit_axes(output))}
            along = [tuple(positions[i] for i in non_unit_axes(v)) for v in node.inputs]
            pairs = list(zip(operands, along, strict=True))
            is_real = all(v.type.dtype == "float64" for v in (*node.inputs, output))
            found = self._arithmetic(op.scalar_op, pairs) if is_real else None
            return self._numbered((op.scalar_op, output.index, *pairs)) if found is None else found
        return None

    def _arithmetic(self, op: Any, operands: Sequence[tuple[int, Along]]) -> int | None:
        """Return the number of a sum or product in normal form, ``None`` for another function."""
        (first, along), *rest = operands
        match op:
            case scalars.Add():
                return self._sum([self._terms(*v) for v in operands])
            case scalars.Sub():
                ((second, other),) = rest
                return self._sum([self._terms(first, along), self._terms(second, other, -1)])
            case scalars.Neg():
                return self._negative(first, along)
            case scalars.Mul():
                return self._product([self._factors(*v) for v in operands])
            case scalars.TrueDiv():
                ((second, other),) = rest
                return self._product(
                    [self._factors(first, along), self._factors(second, other, -1)]
                )
            case scalars.Reciprocal():
                return self._product([self._factors(first, along, -1)])
            case scalars.Sqr():
                return self._product([self._factors(first, along)] * 2)
        return None

    def _terms(self, number: int, along: Along, sign: int = 1) -> Terms:
        """Return the terms of a sum; one, if it is none."""
        form = self._forms[number]
        if isinstance(form, _SumForm):
            terms: Terms = Counter()
            for (term, inner_axes, inner_sign), count in form.terms:
                terms[term, tuple(along[i] for i in inner_axes), sign * inner_sign] += count
            return terms
        if isinstance(form, float) and form < 0:
            return Counter({(self._numbered(-form), along, -sign): 1})
        if isinstance(form, _ProductForm) and form.is_negative:
            positive = self._product([(False, Counter(dict(form.factors)))])
            return Counter({(positive, along, -sign): 1})
        return Counter({(number, along, sign): 1})

    def _sum(self, parts: Iterable[Terms]) -> int:
        terms: Terms = Counter()
        for part in parts:
            terms.update(part)
        return self._numbered(_SumForm(frozenset(terms.items())))

    def _negative(self, number: int, along: Along) -> int:
        if isinstance(self._forms[number], _SumForm):
            return self._sum([self._terms(number, along, -1)])
        is_negative, factors = self._factors(number, along)
        return self._product([(not is_negative, factors)])

    def _factors(self, number: int, along: Along, exponent: int = 1) -> tuple[bool, Factors]:
        """Return whether a product is negative, and its factors; none if it is 1 or -1."""
        form = self._forms[number]
        if isinstance(form, float):
            size = abs(form)
            return form < 0, Counter({(self._numbered(size), (), exponent): 1} if size != 1 else {})
        if isinstance(form, _ProductForm):
            factors: Factors = Counter()
            for (factor, inner_axes, power), count in form.factors:
                factors[factor, tuple(along[i] for i in inner_axes), exponent * power] += count
            return form.is_negative, factors
        return False, Counter({(number, along, exponent): 1})

    def _product(self, parts: Sequence[tuple[bool, Factors]]) -> int:
        is_negative, factors = False, Counter[tuple[int, Along, int]]()
        for own, more in parts:
            is_negative ^= own
            factors += more
        if factors.total() == 1 and not is_negative:
            ((number, _, exponent),) = factors
            if exponent == 1:
                return number
        return self._numbered(_ProductForm(frozenset(factors.items()), is_negative))

    def _numbered(self, form: Hashable) -> int:
        if form not in self._numbers:
            self._numbers[form] = len(self._forms)
            self._forms.append(form)
        return self._numbers[form]
