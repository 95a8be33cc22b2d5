"""Models as people write them: rules find at most one thing in each, and only what is so."""

from __future__ import annotations

import pytest

from scanopt_cli.rules.graph_checking import check
from support.zoo.model import Model, outputs_of
from support.zoo.models import MODELS

_FINDINGS = {
    **dict.fromkeys(
        ("Kalman", "HMM, scaled probabilities", "VAR(1)", "covariance, online", "RNN", "attention"),
        "P009",
    ),
    "products so far": "P004",
    "sum of exponentials": "N002",
    "invariant state, read whole": "C003",
    "invariant state, read from 3": "C003",
}


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_at_most_one_finding(model: Model) -> None:
    """Beside those on loops that may have no steps."""
    found = [finding.code for finding in check(outputs_of(model), ignore=["C002"]).findings]
    assert found == ([_FINDINGS[model.name]] if model.name in _FINDINGS else [])
