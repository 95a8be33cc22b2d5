"""A derivative is checked against what was computed in another way."""

from __future__ import annotations

from dataclasses import replace

import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import clone_replace

from scanopt_cli.autodiff.checking import check_derivative
from scanopt_cli.autodiff.derivative import Outcome
from scanopt_cli.autodiff.differentiating import grad
from scanopt_cli.ir.graph import as_graph
from support.gradient_loops import clipped, garch
from support.graph_building import graph_of, power, scan
from support.tiers import deep

pytestmark = pytest.mark.usefixtures("evaluated_here")

x = pt.dscalar("x")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("strategy", "against"),
    [
        ("taylor", "reverse mode"),
        *deep(
            ("reverse", "forward mode along one direction"),
            ("forward-over-reverse", "forward mode along one direction"),
        ),
    ],
)
def test_strategies_are_checked_against_another(strategy: str, against: str) -> None:
    check = grad(graph_of(garch()), 2, strategy=strategy, check=True).check
    assert check is not None
    assert (check.outcome, check.against) == (Outcome.AGREES, against), check
    assert check.runs > 5


@pytest.mark.deep
def test_a_whole_hessian_is_checked() -> None:
    check = grad(graph_of(garch()), 2, full=True, check=True).check
    assert check is not None
    assert str(check).startswith("agrees with reverse, Hessian times vector on 10 of 10")


def test_finite_differences_where_there_is_no_other_strategy() -> None:
    """Where PyTensor clips a gradient, it is not the slope."""
    check = grad(clipped(), check=True).check
    assert check is not None
    assert check.against == "finite differences"
    assert check.outcome is Outcome.DIFFERS


def test_wrong_values_are_found() -> None:
    start, xs = power(3)
    given = ([start], [xs[-1]])
    derivative = grad(given, 2)
    last = derivative.orders[-1]
    wrong = as_graph((last.graph.inputs, [last.graph.outputs[0] * 1.0001]))
    changed = replace(derivative, orders=(*derivative.orders[:-1], replace(last, graph=wrong)))
    check = check_derivative(changed, as_graph(given), [0], "plain")
    assert check.outcome is Outcome.DIFFERS
    assert str(check).startswith("differs from reverse mode: ")


def test_values_that_are_wrong_once_compiled_are_found() -> None:
    """PyTensor drops the third term of a sum with a product of matrices."""
    a, b = pt.dtensor3("a"), pt.dtensor3("b")
    right, wrong = (
        scan(step, sequences=[a, b], outputs_info=[pt.zeros((2, 2))]).owner.inputs[0][-1].sum()
        for step in (
            lambda p, q, acc: (acc - -pt.dot(p, q)) + p,
            lambda p, q, acc: pt.add(acc, pt.dot(p, q), p),
        )
    )
    given = ([a, b], [right])
    derivative = grad(given, wrt=["a"])
    last = derivative.orders[-1]
    built = clone_replace(last.graph.outputs, dict(zip(last.graph.inputs, [a, b], strict=True)))
    changed = as_graph(([a, b], [output + (wrong - right) for output in built]))
    orders = (*derivative.orders[:-1], replace(last, graph=changed))
    for modes, outcome in (("plain", Outcome.AGREES), ("vm", Outcome.DIFFERS)):
        check = check_derivative(replace(derivative, orders=orders), as_graph(given), [0], modes)
        assert check.outcome is outcome, check
    assert "compiled by vm" in str(check)


def test_what_cannot_run_is_not_called_right() -> None:
    out = scan(lambda h: h * pt.log(-1.0 - h**2), outputs_info=[x], n_steps=3)[-1]
    check = grad(graph_of(out), check=True).check
    assert check is not None
    assert check.outcome is Outcome.NOT_CHECKED
    assert str(check).startswith("not checked: ")
