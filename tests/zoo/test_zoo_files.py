"""Every model of the zoo, and its derivatives, come back from a file as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import tiers
from support.round_trips import assert_comes_back
from support.zoo.model import Model, outputs_of
from support.zoo.models import MODELS


@pytest.mark.tiered(every=12)
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_comes_back(model: Model, tmp_path: Path) -> None:
    for order in range(min(model.order, tiers.examples(1, 2)) + 1 if model.wrt else 1):
        assert_comes_back(outputs_of(model, order), tmp_path / "graph.pkl")
