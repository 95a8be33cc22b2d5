"""Recognises states that sum values over the steps, and addends that are outer products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot

_MOST_FACTORS = 64
"""Of how many factors a product is taken apart; a product of itself has twice as many."""


@dataclass(frozen=True, slots=True)
class Term:
    """A value that a state adds in each step, or subtracts if ``is_negative``."""

    value: Variable
    is_negative: bool = False


@dataclass(frozen=True, slots=True)
class Factor:
    """A value that a product is multiplied by, or divided by if ``is_divisor``."""

    value: Variable
    is_divisor: bool = False


@dataclass(frozen=True, slots=True)
class Outer:
    """The outer product of a column and a row, each the product of its factors.

    The factors in ``columns`` have shape (n, 1) or (1, 1), those in ``rows`` (1, m).
    """

    columns: tuple[Factor, ...] = ()
    rows: tuple[Factor, ...] = ()
    is_negative: bool = False

    def vectors(self, dtype: str) -> tuple[Variable, Variable]:
        """Return the column, with the sign of the product, and the row, as vectors of ``dtype``."""
        column = _vector(_multiplied(self.columns, dtype), 0)
        return -column if self.is_negative else column, _vector(_multiplied(self.rows, dtype), 1)


def readers(outputs: Iterable[Variable]) -> Counter[Variable]:
    """Count the uses of each variable of a body; being one of ``outputs`` is a use."""
    wanted = list(outputs)
    counts = Counter(part for node in toposort(wanted) for part in node.inputs)
    counts.update(wanted)
    return counts


def added(state: Variable, update: Variable, counts: Counter[Variable]) -> list[Term] | None:
    """Return what ``update`` adds to ``state``; ``None`` if it is no such sum.

    ``counts`` are the uses of each variable (see `readers`). Also ``None`` if ``state`` or
    ``update`` has another use.
    """
    if counts[state] != 1 or counts[update] != 1:
        return None
    terms = list(_terms(Term(update), counts))
    carried = [term for term in terms if term.value is state]
    if len(carried) != 1 or carried[0].is_negative:
        return None
    return [term for term in terms if term.value is not state]


def outer_product(term: Term) -> Outer | None:
    """Return ``term`` as the product of a column and a row, ``None`` if it is not one."""
    variable: Any = term.value
    if variable.type.ndim != 2 or any(variable.type.broadcastable):
        return None
    return _factored(variable, Outer(is_negative=term.is_negative))


def _terms(term: Term, counts: Counter[Variable]) -> Iterator[Term]:
    """Yield the addends of ``term``; ``term`` itself if it is not a sum that can be split.

    A sum is split if it has a single use, and its operands have its dtype and broadcast pattern.
    """
    variable: Any = term.value
    node = variable.owner
    if node is None or not isinstance(node.op, Elemwise) or counts[variable] != 1:
        yield term
        return
    parts = [Term(part, term.is_negative) for part in node.inputs]
    match node.op.scalar_op:
        case ps.Add():
            pass
        case ps.Sub():
            parts[1] = replace(parts[1], is_negative=not term.is_negative)
        case ps.Neg():
            parts[0] = replace(parts[0], is_negative=not term.is_negative)
        case _:
            yield term
            return
    if any(
        part.value.type.dtype != variable.type.dtype
        or part.value.type.broadcastable != variable.type.broadcastable
        for part in parts
    ):
        yield term
        return
    for part in parts:
        yield from _terms(part, counts)


def _factored(variable: Any, found: Outer, *, is_divisor: bool = False) -> Outer | None:
    """Multiply ``found`` by ``variable``, or divide if ``is_divisor``.

    ``None`` if the result is not the product of a column and a row, or has very many factors.
    """
    if len(found.columns) + len(found.rows) > _MOST_FACTORS:
        return None
    factor = Factor(variable, is_divisor)
    if variable.type.broadcastable == (True, False):
        return replace(found, rows=(*found.rows, factor))
    if variable.type.broadcastable[1]:
        return replace(found, columns=(*found.columns, factor))
    node = variable.owner
    parts = None if node is None else _factors(node)
    if parts is None or (is_divisor and isinstance(node.op, Dot)):
        return None
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Neg):
        found = replace(found, is_negative=not found.is_negative)
    if not all(_is_cast_alike(part.value, variable, len(parts)) for part in parts):
        return None
    for part in parts:
        longer = _factored(part.value, found, is_divisor=part.is_divisor != is_divisor)
        if longer is None:
            return None
        found = longer
    return found


def _is_cast_alike(part: Any, product: Any, count: int) -> bool:
    """Whether a factor, of ``count``, may be cast to the dtype of the product before it is used.

    A matrix of another dtype is itself a product, which wraps around or overflows in that dtype;
    and of several factors, those of a narrower dtype may be multiplied first.
    """
    is_same = part.type.dtype == product.type.dtype
    return is_same or (count == 2 and any(part.type.broadcastable))


def _factors(node: Apply) -> list[Factor] | None:
    """The factors whose product ``node`` computes, up to the sign of a ``Neg``; else ``None``.

    A ``Dot`` counts only if it is an outer product.
    """
    match node.op:
        case Elemwise(scalar_op=ps.Mul() | ps.Neg()):
            return [Factor(part) for part in node.inputs]
        case Elemwise(scalar_op=ps.TrueDiv()):
            above, below = node.inputs
            return [Factor(above), Factor(below, is_divisor=True)]
        case Dot():
            left, right = node.inputs
            is_outer = left.type.broadcastable[1] and right.type.broadcastable[0]
            return [Factor(left), Factor(right)] if is_outer else None
    return None


def _multiplied(factors: Iterable[Factor], dtype: str) -> Any:
    above = [pt.cast(factor.value, dtype) for factor in factors if not factor.is_divisor]
    below = [pt.cast(factor.value, dtype) for factor in factors if factor.is_divisor]
    product: Any = reduce(pt.mul, above) if above else pt.ones((1, 1), dtype=dtype)
    return reduce(pt.true_div, below, product)


def _vector(matrix: Any, axis: int) -> Any:
    """A column or a row as a vector along ``axis``: the vector that it was made from, if any."""
    node = matrix.owner
    if node is not None and isinstance(node.op, DimShuffle) and node.inputs[0].type.ndim == 1:
        return node.inputs[0]
    return matrix.dimshuffle(axis)
