"""Affine expressions over integers: a constant plus multiples of unknowns, the atoms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pytensor.graph.basic import Variable


@dataclass(frozen=True, slots=True)
class Atom:
    """An unknown of an affine expression: a scalar ``variable``, or its length along ``axis``.

    ``text`` is shown for a variable that is better described by what it computes.
    """

    variable: Variable
    axis: int | None = None
    text: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        name = self.text or self.variable.name or "?"
        return name if self.axis is None else f"{name}.shape[{self.axis}]"


@dataclass(frozen=True, slots=True)
class AffineExpr:
    """``constant + sum(coefficient * atom)`` over the integers."""

    constant: int = 0
    terms: frozenset[tuple[Atom, int]] = frozenset()

    @classmethod
    def of(cls, atom: Atom) -> AffineExpr:
        """Return the expression that is ``atom`` alone."""
        return cls(0, frozenset({(atom, 1)}))

    def __add__(self, other: AffineExpr | int) -> AffineExpr:
        return self._combined(other, 1)

    def __sub__(self, other: AffineExpr | int) -> AffineExpr:
        return self._combined(other, -1)

    @property
    def atoms(self) -> frozenset[Atom]:
        """The atoms that the expression depends on."""
        return frozenset(atom for atom, _ in self.terms)

    def scaled(self, factor: int) -> AffineExpr:
        """Return the expression times ``factor``."""
        if factor == 0:
            return AffineExpr()
        terms = frozenset((atom, count * factor) for atom, count in self.terms)
        return AffineExpr(self.constant * factor, terms)

    def divided(self, divisor: int) -> AffineExpr | None:
        """The quotient by a positive number, rounded up, ``None`` if it is not affine."""
        if any(count % divisor for _, count in self.terms):
            return None
        terms = frozenset((atom, count // divisor) for atom, count in self.terms)
        return AffineExpr(-(-self.constant // divisor), terms)

    @property
    def is_constant(self) -> bool:
        """Whether the expression has no atoms."""
        return not self.terms

    def _combined(self, other: AffineExpr | int, sign: int) -> AffineExpr:
        other = as_affine(other)
        if not other.terms:
            return AffineExpr(self.constant + sign * other.constant, self.terms)
        return _collected(((self, 1), (other, sign)))

    def __str__(self) -> str:
        terms = sorted((str(atom), count) for atom, count in self.terms)
        parts = [multiple(name, count) for name, count in terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return "+".join(parts).replace("+-", "-")


ZERO = AffineExpr(0)
ONE = AffineExpr(1)


def as_affine(value: AffineExpr | int) -> AffineExpr:
    """Return an integer as an affine expression, and an affine expression as it is."""
    return value if isinstance(value, AffineExpr) else AffineExpr(value)


def total(parts: Iterable[AffineExpr]) -> AffineExpr:
    """Return the sum of ``parts``, in time linear in their terms."""
    return _collected((part, 1) for part in parts)


def _collected(parts: Iterable[tuple[AffineExpr, int]]) -> AffineExpr:
    """Return the sum of expressions, each times a factor."""
    constant = 0
    counts: dict[Atom, int] = {}
    for part, factor in parts:
        constant += factor * part.constant
        for atom, count in part.terms:
            counts[atom] = counts.get(atom, 0) + factor * count
    return AffineExpr(constant, frozenset(term for term in counts.items() if term[1]))


def multiple(name: str, count: int) -> str:
    """Return ``n``, ``-n`` or ``2*n``."""
    return name if count == 1 else f"-{name}" if count == -1 else f"{count}*{name}"


def is_sum_of_dimensions(form: AffineExpr) -> bool:
    """Whether ``form`` is a sum of dimensions and a constant >= 0, so provably non-negative."""
    return form.constant >= 0 and all(
        count > 0 and atom.axis is not None for atom, count in form.terms
    )
