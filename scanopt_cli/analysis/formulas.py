"""Sizes as polynomials, printed as ``2*n+1``, ``64*n+64``, ``?1*n+?1``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import walk

from scanopt_cli.analysis.affine import AffineExpr, Atom, multiple
from scanopt_cli.analysis.expression_text import describe
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.minima import minimum_parts

_MOST_TERMS = 1_000
# An expression that is longer, or deeper, is a number without a name.
_LONGEST = 24
_DEPTH = 2

# A product of atoms, in the order of `_sort_key`; the empty product belongs to the constant term.
type _Monomial = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Formula:
    """A polynomial in trip counts and dimensions.

    Atoms are compared by identity, not by name: two without a name, and without a short expression
    that makes them, are printed as ``?1`` and ``?2``. Minima of the same numbers are one.
    """

    terms: Mapping[_Monomial, int] = field(default_factory=dict)

    @classmethod
    def of(cls, form: AffineExpr) -> Formula:
        """Return ``form`` as a polynomial of degree 1."""
        return cls({(): form.constant} | {(atom,): count for atom, count in form.terms})

    @classmethod
    def total(cls, parts: Iterable[Formula]) -> Formula:
        """Return the sum of ``parts``, in time linear in their terms."""
        terms: Counter[_Monomial] = Counter()
        for part in parts:
            for monomial, count in part.terms.items():
                terms[monomial] += count
        return cls(terms)

    def __add__(self, other: Formula) -> Formula:
        return Formula.total((self, other))

    def times(self, factors: Sequence[AffineExpr]) -> Formula:
        """Return the formula times each of ``factors``.

        If that has more than a thousand terms, each sum among ``factors`` becomes one unknown.
        """
        if len(self.terms) * prod(len(factor.terms) + 1 for factor in factors) > _MOST_TERMS:
            factors = [_as_one(factor) for factor in factors]
        product = self
        for factor in factors:
            terms: Counter[_Monomial] = Counter()
            for monomial, count in product.terms.items():
                for added, times in Formula.of(factor).terms.items():
                    if not times:
                        continue
                    terms[tuple(sorted((*monomial, *added), key=_sort_key))] += count * times
            product = Formula(terms)
        return product

    def at(self, length: float) -> float:
        """Return the value of the formula where every unknown is ``length``."""
        return sum(
            count * prod(_at(atom.variable, length, atom.axis) for atom in monomial)
            for monomial, count in self.terms.items()
        )

    def scaled(self, factor: int) -> Formula:
        """Return the formula times a number."""
        return Formula({monomial: count * factor for monomial, count in self.terms.items()})

    def substituted(self, replace: Callable[[AffineExpr], AffineExpr]) -> Formula:
        """Return the formula with what ``replace`` returns of each atom in its place."""
        return Formula.total(
            Formula({(): count}).times([replace(AffineExpr.of(atom)) for atom in monomial])
            for monomial, count in self.terms.items()
        )

    def __str__(self) -> str:
        names = self._names()
        by_names: Counter[tuple[str, ...]] = Counter()
        for monomial, count in self.terms.items():
            if count:
                by_names[tuple(sorted(names[atom] for atom in monomial))] += count
        parts = [
            multiple("*".join(monomial), count) if monomial else str(count)
            for monomial, count in sorted(by_names.items(), key=lambda item: (-len(item[0]), item))
            if count
        ]
        return "+".join(parts).replace("+-", "-") or "0"

    def _names(self) -> dict[Atom, str]:
        """Return the text of each atom; distinct atoms with the same text are numbered."""
        atoms = dict.fromkeys(
            atom for monomial, count in self.terms.items() if count for atom in monomial
        )
        written = {atom: _text(atom) for atom in atoms}
        texts = Counter(written.values())
        alike: dict[str, list[object]] = {}
        for atom, text in written.items():
            if texts[text] > 1 and (what := _quantity(atom)) not in alike.setdefault(text, []):
                alike[text].append(what)
        return {
            atom: _numbered(text, alike[text].index(_quantity(atom)) + 1)
            if len(alike.get(text, ())) > 1
            else text
            for atom, text in written.items()
        }


def _as_one(factor: AffineExpr) -> AffineExpr:
    """Return an expression as one number, unless it is one."""
    if len(factor.terms) + bool(factor.constant) < 2:
        return factor
    text = f"({factor})"
    return AffineExpr.of(Atom(pt.lscalar(), text=text if len(text) <= _LONGEST else None))


def _at(variable: Variable, length: float, axis: int | None = None) -> float:
    """Return what a number is, a minimum of numbers for one, if all that is unknown is one."""
    if isinstance(variable, Constant):
        return float(np.min(variable.data))
    parts = None if axis is not None else minimum_parts(variable)
    return length if parts is None else min(_at(part, length) for part in parts)


def _text(atom: Atom) -> str:
    """Return an atom as text: an expression, if its variable has no name, and that is short."""
    text = str(atom)
    if "?" not in text or atom.text or atom.variable.owner is None:
        return text
    expression = describe(atom.variable, depth=_DEPTH)
    if len(expression) > _LONGEST or any(mark in expression for mark in "?…<"):
        return text
    if atom.axis is None:
        return f"({expression})"
    if " " in expression and not expression.endswith("]"):
        expression = f"({expression})"
    return f"{expression}.shape[{atom.axis}]"


def _quantity(atom: Atom) -> object:
    """Return what is equal for one quantity: each loop makes a minimum of its own."""
    if minimum_parts(atom.variable) is None or atom.axis is not None:
        return atom
    lengths = Lengths()
    parts = walk([atom.variable], minimum_parts)
    return frozenset(lengths.value_of(part) for part in parts if minimum_parts(part) is None)


def _sort_key(atom: Atom) -> tuple[str, int, int]:
    return str(atom), id(atom.variable), -1 if atom.axis is None else atom.axis


def _numbered(text: str, number: int) -> str:
    return text.replace("?", f"?{number}", 1) if "?" in text else f"{text}#{number}"
