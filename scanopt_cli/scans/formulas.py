"""Sizes as people write them: ``2*n+1``, ``64*(n+1)``, ``(n+1)*?``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from scanopt_cli.scans.lengths import Linear

# A product of atoms: the names of its factors, sorted. The empty one is the plain number.
type _Monomial = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Formula:
    """A polynomial in the names of step counts and dimensions; ``?`` is a length nobody knows."""

    terms: Mapping[_Monomial, int] = field(default_factory=dict)

    @classmethod
    def of(cls, form: Linear) -> Formula:
        """Return ``form`` with its atoms told by name; equal names add up."""
        terms: Counter[_Monomial] = Counter({(): form.constant})
        for atom, count in form.terms:
            terms[(str(atom),)] += count
        return cls(terms)

    def __add__(self, other: Formula) -> Formula:
        terms = Counter(self.terms)
        for monomial, count in other.terms.items():
            terms[monomial] += count
        return Formula(terms)

    def times(self, lengths: Iterable[int | None]) -> Formula:
        """Return the formula times each length, ``None`` being an unknown one."""
        known = list(lengths)
        factor = prod(length for length in known if length is not None)
        unknown = ("?",) * known.count(None)
        return Formula(
            {
                tuple(sorted((*monomial, *unknown))): count * factor
                for monomial, count in self.terms.items()
            }
        )

    def __str__(self) -> str:
        parts = [
            _term(monomial, count)
            for monomial, count in sorted(
                self.terms.items(), key=lambda item: (-len(item[0]), item)
            )
            if count
        ]
        return "+".join(parts).replace("+-", "-") or "0"


def _term(monomial: _Monomial, count: int) -> str:
    if not monomial:
        return str(count)
    product = "*".join(monomial)
    return product if count == 1 else f"-{product}" if count == -1 else f"{count}*{product}"
