"""Affine forms of some states: factors of the states, and a term, which depend on none of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar import basic as scalars


@dataclass(frozen=True, slots=True)
class AffineForm:
    """What a value has of some states.

    Attributes
    ----------
    factors
        What it has of each state, by its number; of the others it has nothing.
    term
        What is added to that; ``None`` for nothing.
    """

    factors: Mapping[int, Any] = field(default_factory=dict)
    term: Any = None

    def mapped(self, function: Callable[[Any], Any]) -> AffineForm:
        """Return the form of which each factor and the term are ``function`` of these."""
        factors = {k: function(v) for k, v in self.factors.items()}
        return AffineForm(factors, None if self.term is None else function(self.term))

    def variables(self) -> list[Variable]:
        """Return the factors and the term."""
        return [*self.factors.values(), *([] if self.term is None else [self.term])]


def affine_forms(
    outputs: Sequence[Variable], states: Sequence[Variable], varying: Collection[Variable]
) -> list[AffineForm] | None:
    """Return what outputs have of states; ``None`` if one is not affine, or of several dtypes.

    ``varying`` are the variables that depend on the states.
    """
    if len({v.type.dtype for v in (*states, *outputs)}) > 1:
        return None
    forms: dict[Variable, AffineForm | None] = {
        state: AffineForm({k: _like(state, 1)}) for k, state in enumerate(states)
    }

    def form_of(variable: Variable) -> AffineForm | None:
        return forms[variable] if variable in varying else AffineForm(term=variable)

    for node in toposort(outputs, blockers=states):
        if any(v in varying for v in node.inputs):
            parts = [form_of(v) for v in node.inputs]
            known = [part for part in parts if part is not None]
            rule = _RULES.get(type(node.op)) if _has_one_dtype(node) else None
            form = rule(known) if rule and len(known) == len(parts) else None
            forms |= dict.fromkeys(node.outputs, form)
    found = [form for v in outputs if (form := form_of(v)) is not None]
    return found if len(found) == len(outputs) else None


def _has_one_dtype(node: Apply) -> bool:
    """Whether what a node computes is of the dtype of what it computes that of."""
    values = node.inputs[1:] if isinstance(node.op, scalars.Switch) else node.inputs
    return len({v.type.dtype for v in (*values, *node.outputs)}) == 1


def _like(variable: Any, value: float) -> Any:
    return scalars.constant(value, dtype=variable.type.dtype)


type _Rule = Callable[[Sequence[AffineForm]], AffineForm | None]
"""Returns the form of what an operation makes of forms."""


def _sum(forms: Sequence[AffineForm]) -> AffineForm:
    terms = [form.term for form in forms if form.term is not None]
    factors: dict[int, list[Any]] = {}
    for form in forms:
        for k, factor in form.factors.items():
            factors.setdefault(k, []).append(factor)
    return AffineForm({k: _added(every) for k, every in factors.items()}, _added(terms))


def _added(terms: Sequence[Any]) -> Any:
    return scalars.add(*terms) if len(terms) > 1 else next(iter(terms), None)


def _negative(forms: Sequence[AffineForm]) -> AffineForm:
    return forms[0].mapped(scalars.neg)


def _difference(forms: Sequence[AffineForm]) -> AffineForm:
    return _sum([forms[0], _negative(forms[1:])])


def _product(forms: Sequence[AffineForm]) -> AffineForm | None:
    factors = [form.term for form in forms if not form.factors]
    varying = [form for form in forms if form.factors]
    return varying[0].mapped(lambda v: scalars.mul(*factors, v)) if len(varying) == 1 else None


def _quotient(forms: Sequence[AffineForm]) -> AffineForm | None:
    above, below = forms
    return None if below.factors else above.mapped(lambda v: scalars.true_div(v, below.term))


def _choice(forms: Sequence[AffineForm]) -> AffineForm | None:
    condition, *ways = forms
    if condition.factors:
        return None

    def chosen(values: Sequence[Any]) -> Any:
        some = next(v for v in values if v is not None)
        values = [_like(some, 0) if v is None else v for v in values]
        return scalars.switch(condition.term, *values)

    factors = {k: chosen([w.factors.get(k) for w in ways]) for way in ways for k in way.factors}
    terms = [way.term for way in ways]
    return AffineForm(factors, None if all(term is None for term in terms) else chosen(terms))


_RULES: Mapping[type, _Rule] = {
    scalars.Add: _sum,
    scalars.Sub: _difference,
    scalars.Neg: _negative,
    scalars.Mul: _product,
    scalars.TrueDiv: _quotient,
    scalars.Switch: _choice,
    scalars.Identity: lambda forms: forms[0],
}
