"""Draw what the steps of a loop compute: expressions over the values that a step sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from hypothesis import strategies as st

from support.generated.operators import (
    ALGEBRA,
    CONVERSIONS,
    FORMS,
    MULTIPLYING,
    PRODUCTS,
    SPREADING,
    Operator,
)
from support.generated.plans import Expression, Kind

CONSTANTS = {
    Kind.INTEGER: (0, 1, -2),
    Kind.REAL: (0.0, 0.5, -1.5, 1.0),
    Kind.VECTOR: (0.0, 0.5, -1.5, 1.0),
    Kind.MATRIX: (0.0, 0.5, -1.5, 1.0),
}


class Draw(Protocol):
    """What `st.composite` hands to a strategy."""

    def __call__[T](self, strategy: st.SearchStrategy[T]) -> T: ...


def reading(name: str) -> Expression:
    return Expression("read", (name,))


def draw_update(
    draw: Draw, own: Sequence[str], kind: Kind, leaves: Mapping[str, Kind]
) -> Expression:
    """Draw the update of a state that a step sees as ``own``, in order of time.

    Most are any expression; some are sums with the state in them, the state as it was, or what
    no step changes.
    """
    styles = ["any"] * 5 + ["invariant", "steady"]
    style = draw(st.sampled_from([*styles, *(["sum"] * 2 if kind in PRODUCTS else [])]))
    if style == "steady":
        return reading(own[-1])
    if style == "sum":
        return _sum(draw, own[-1], kind, leaves)
    if style == "invariant":
        leaves = {name: other for name, other in leaves.items() if name.startswith(("w", "u"))}
    update = draw_expression(draw, leaves, kind)
    if kind is not Kind.INTEGER and _grows(update):
        return Expression("tanh", (update,))
    return update


def draw_condition(draw: Draw, leaves: Mapping[str, Kind]) -> Expression:
    bound = draw(st.sampled_from([0.0, 0.5, 2.0]))
    return Expression("exceeds", (draw_expression(draw, leaves, Kind.REAL), bound))


def draw_expression(
    draw: Draw, leaves: Mapping[str, Kind], kind: Kind, depth: int = 2
) -> Expression:
    """Draw an expression of ``kind`` over ``leaves``, ``depth`` operators high at most."""
    kinds = set(leaves.values())
    reads = [name for name, other in leaves.items() if other is kind]
    conversions = _of_kind(CONVERSIONS, kind, kinds)
    algebra = _of_kind(ALGEBRA, kind, kinds)
    forms = ["read"] * 3 if reads else []
    if depth:
        forms += ["elementwise"] * 3
        forms += ["convert"] * 2 if conversions else []
        forms += ["algebra"] if algebra else []
    forms.append("constant")
    form = draw(st.sampled_from(forms))
    if form == "read":
        return reading(draw(st.sampled_from(reads)))
    if form == "constant":
        constant = Expression("constant", (draw(st.sampled_from(CONSTANTS[kind])),))
        return Expression(SPREADING[kind], (constant,)) if kind in SPREADING else constant
    if form == "elementwise":
        by_arity = FORMS[kind is not Kind.INTEGER]
        arity = draw(st.sampled_from([1, 2, 2, 3][: 1 + len(by_arity)]))
        operator, operands = draw(st.sampled_from(by_arity[arity - 1])), (kind,) * arity
    else:
        operator = draw(st.sampled_from(conversions if form == "convert" else algebra))
        operands = (CONVERSIONS | ALGEBRA)[operator].operands
    drawn = [draw_expression(draw, leaves, operand, depth - 1) for operand in operands]
    if operator == "log_add_exp":
        drawn = [Expression("tanh", (part,)) if _of_states(part) else part for part in drawn]
    return Expression(operator, tuple(drawn))


def _sum(draw: Draw, own: str, kind: Kind, leaves: Mapping[str, Kind]) -> Expression:
    """Draw a sum with the state ``own`` in it: of two or three terms, or of exponentials."""
    steady = {name: other for name, other in leaves.items() if not _of_states(reading(name))}

    def factor(other: Kind, among: Mapping[str, Kind]) -> Expression:
        return draw_expression(draw, among, other, 0 if other in among.values() else 1)

    def product() -> Expression:
        operator = draw(st.sampled_from(PRODUCTS[kind]))
        first, second = ALGEBRA[operator].operands
        return Expression(operator, (factor(first, steady), factor(second, leaves)))

    if kind is not Kind.MATRIX and draw(st.booleans()):
        if kind is Kind.REAL:
            return Expression("log_add_exp", (reading(own), factor(kind, steady)))
        return Expression("log_sum_exp", (factor(Kind.MATRIX, steady), reading(own)))
    terms = [reading(own), product()]
    if draw(st.booleans()):
        terms.append(product() if draw(st.booleans()) else factor(kind, steady))
    terms = draw(st.permutations(terms))
    return Expression("add" if len(terms) == 2 else "add_three", tuple(terms))


def _of_kind(operators: Mapping[str, Operator], kind: Kind, kinds: set[Kind]) -> list[str]:
    """Name the operators whose results are of ``kind`` and that read at least one of ``kinds``."""
    return [
        name
        for name, operator in operators.items()
        if operator.result is kind and not kinds.isdisjoint(operator.operands)
    ]


def _of_states(expression: Expression) -> bool:
    """Whether an expression reads a state, or a loop inside of the step."""
    return any(part.startswith(("h", "d", "z", "inner")) for part in expression.parts)


def _grows(expression: Expression) -> bool:
    """Whether states are multiplied with each other."""
    operands = [part for part in expression.operands if isinstance(part, Expression)]
    factors = sum(map(_of_states, operands)) if expression.operator in MULTIPLYING else 0
    return factors > 1 or any(map(_grows, operands))
