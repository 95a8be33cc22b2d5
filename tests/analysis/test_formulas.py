"""Sizes as people write them."""

from __future__ import annotations

import pytensor.tensor as pt

from scanopt_cli.analysis.affine import AffineExpr, Atom, total
from scanopt_cli.analysis.formulas import Formula
from scanopt_cli.analysis.lengths import Lengths

N = pt.lscalar("n")
LENGTHS = Lengths(N)


def _formula(variable) -> Formula:
    return Formula.of(LENGTHS.value_of(variable))


def test_sums_and_products() -> None:
    size = _formula(N + 1).times([AffineExpr(3)]) + _formula(2 * N)
    assert str(size) == "5*n+3"
    assert str(_formula(N + 1).times([LENGTHS.value_of(N)])) == "n*n+n"


def test_nothing_is_zero_rows() -> None:
    assert str(Formula()) == "0"
    assert str(_formula(N).times([AffineExpr(0)])) == "0"
    assert str(_formula(N) + _formula(-N)) == "0"


def test_quantities_without_a_name_are_told_apart() -> None:
    first, second = pt.lscalar(), pt.lscalar()
    squares = _formula(first**2) + _formula(second**2)
    assert str(squares) == "?1+?2"


def test_minima_of_named_quantities_add_up() -> None:
    total = _formula(pt.minimum(3, N)) + _formula(pt.minimum(3, N))
    assert str(total) == "2*min(3,n)"


def test_a_product_of_many_sums_stays_short() -> None:
    """Multiplied out, eight sums of eight numbers have 16 million terms."""
    sums = [total(AffineExpr.of(Atom(pt.lscalar(f"n{i}"))) for i in range(8)) for _ in range(8)]
    product = Formula({(): 3}).times(sums)
    assert len(product.terms) == 1
    assert str(product).startswith("3*?1*?2*")
    assert product.at(2) == 3 * 2**8
    few = Formula({(): 3}).times(sums[:2])
    assert len(few.terms) == 64


def test_minima_of_other_quantities_of_one_name_are_told_apart() -> None:
    total = _formula(pt.minimum(3, N)) + _formula(pt.minimum(3, pt.lscalar("n")))
    assert str(total) == "min(3,n)#1+min(3,n)#2"


def test_minima_of_more_than_is_shown_are_told_apart() -> None:
    numbers = [pt.lscalar(name) for name in "abcdefgh"]

    def least(*others) -> Formula:
        found = numbers[0]
        for number in (*numbers[1:6], *others):
            found = pt.minimum(found, number)
        return _formula(found)

    last, other = numbers[6:]
    shown = "min(a,b,c,d,e,f,...)"
    assert str(least(last) + least(other)) == f"{shown}#1+{shown}#2"
    assert str(least(last) + least(last)) == f"2*{shown}"
