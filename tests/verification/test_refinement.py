"""A graph may compute where the original raises; it may not raise where that computes."""

from __future__ import annotations

import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.verification.result import DifferenceKind, Verdict
from scanopt_cli.verification.verifying import verify
from support.graph_building import graph_of, scan

pytestmark = pytest.mark.usefixtures("evaluated_here")


def _always_too_short():
    """A loop of five steps over an unused sequence of three."""
    x = pt.dscalar("x")
    ys = scan(lambda a, y: y * 2, sequences=[pt.zeros(3)[:5]], outputs_info=[x], n_steps=5)
    fine = scan(lambda y: y * 2, outputs_info=[x], n_steps=5)
    return graph_of(ys), graph_of(fine)


def test_a_lost_error_is_no_evidence() -> None:
    raising, fine = _always_too_short()
    found = verify(raising, fine)
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert found.reason is not None
    assert "the first graph raises ValueError" in found.reason
    assert "and the second computes" in found.reason


def test_a_lost_error_is_a_difference_when_strict() -> None:
    raising, fine = _always_too_short()
    found = verify(raising, fine, strict=True)
    assert found.verdict is Verdict.DIFFERS
    assert {item.kind for item in found.differences} == {DifferenceKind.ONLY_A_RAISES}


def test_a_new_error_is_a_difference() -> None:
    raising, fine = _always_too_short()
    assert verify(fine, raising).verdict is Verdict.DIFFERS


def test_verify_says_what_optimize_said_of_the_same_two_graphs() -> None:
    x, s = pt.dscalar("x"), pt.dvector("s")
    positive = Assert("s > 0")
    ys, _ = scan(
        lambda a, y: [y * 2, positive(a, pt.gt(a, 0))], sequences=[s], outputs_info=[x, None]
    )
    graph = graph_of(ys)
    result = optimize(graph, "remove-unused", verify=True, modes="plain")
    assert result.verification is not None
    assert result.verification.ok
    assert result.verification.reason is not None
    assert "the first graph raises AssertionError: s > 0" in result.verification.reason
    assert verify(graph, result.graph, modes="plain") == result.verification


def test_optimize_accepts_what_it_verifies() -> None:
    x, s, n = pt.dscalar("x"), pt.dvector("s"), pt.lscalar("n")
    ys, _ = scan(lambda a, y: [y * 2, a], sequences=[s], outputs_info=[x, None], n_steps=n)
    result = optimize(graph_of(ys[-1]), verify=True)
    assert result.verification is not None
    assert result.verification.ok
