"""An optimised graph may compute where the original raises, if one says so."""

from __future__ import annotations

import pytensor.tensor as pt

from graph_building import graph_of, scan
from scanopt_cli.passes.optimizing import optimize
from scanopt_cli.verification.result import DifferenceKind, Verdict
from scanopt_cli.verification.verifying import verify


def _always_too_short():
    """A loop of five steps over an unused sequence of three."""
    x = pt.dscalar("x")
    ys = scan(lambda a, y: y * 2, sequences=[pt.zeros(3)[:5]], outputs_info=[x], n_steps=5)
    fine = scan(lambda y: y * 2, outputs_info=[x], n_steps=5)
    return graph_of(ys), graph_of(fine)


def test_lost_error_is_a_difference() -> None:
    raising, fine = _always_too_short()
    found = verify(raising, fine)
    assert found.verdict is Verdict.DIFFERS
    assert {item.kind for item in found.differences} == {DifferenceKind.ONLY_A_RAISES}


def test_lost_error_is_no_evidence_when_refining() -> None:
    raising, fine = _always_too_short()
    found = verify(raising, fine, refines=True)
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert found.reason is not None
    assert "the original raises" in found.reason


def test_new_error_is_a_difference_even_when_refining() -> None:
    raising, fine = _always_too_short()
    assert verify(fine, raising, refines=True).verdict is Verdict.DIFFERS


def test_optimize_accepts_what_it_verifies() -> None:
    x, s, n = pt.dscalar("x"), pt.dvector("s"), pt.lscalar("n")
    ys, _ = scan(lambda a, y: [y * 2, a], sequences=[s], outputs_info=[x, None], n_steps=n)
    result = optimize(graph_of(ys[-1]), verify=True)
    assert result.verification is not None
    assert result.verification.ok
