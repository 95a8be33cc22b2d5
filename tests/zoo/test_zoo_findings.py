"""Models as people write them: a rule that finds waste finds at most one thing in each."""

from __future__ import annotations

import pytest
from zoo_all import MODELS
from zoo_model import Model, outputs_of

from scanopt_cli.rules.graph_checking import check

_UNKNOWN_SHAPES = {
    *("Kalman", "HMM, scaled probabilities", "VAR(1)", "covariance, online", "RNN", "attention"),
}


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_at_most_one_finding(model: Model) -> None:
    found = [finding.code for finding in check(outputs_of(model), select=["P"]).findings]
    expected = ["P009"] if model.name in _UNKNOWN_SHAPES else []
    assert found == (["P004"] if model.name == "products so far" else expected)
