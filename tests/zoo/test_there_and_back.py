"""Scans that become TracedLoops and Scans again cost no node and no buffer more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scanopt_cli.ir.graph import from_io
from support.sample_building import samples
from support.there_and_back import Cost, RoundTrip, loop_ops, models
from support.zoo.model import Model, outputs_of
from support.zoo.models import MODELS

BATCHED = ("batch of loops", "vectorised")
"""Graphs with batched Scans, which do not come back as such."""
OF_LESS = {"rows of elements"}
"""Models of a loop in a loop, whose inner one comes back with an addition less."""


def _models() -> Iterator[object]:
    for model, order in models():
        if model.name not in BATCHED:
            marks = [pytest.mark.deep] if order else []
            yield pytest.param(model, order, marks=marks, id=f"{model}-{order}")


def assert_at_no_cost(trip: RoundTrip, *, is_same: bool) -> None:
    scans, _, back = trip.costs
    assert back.is_at_most(scans), (scans, back)
    if is_same:
        assert loop_ops(trip.back) == loop_ops(trip.scans)


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize(("model", "order"), tuple(_models()))
def test_models_come_back_at_no_cost(model: Model, order: int) -> None:
    trip = RoundTrip.of(from_io(*outputs_of(model, order)))
    assert_at_no_cost(trip, is_same=not (order and model.name in OF_LESS))


@pytest.mark.parametrize("name", sorted(samples().keys() - set(BATCHED)))
def test_samples_come_back_at_no_cost(name: str) -> None:
    assert_at_no_cost(RoundTrip.of(samples()[name]), is_same=True)


def test_what_batched_scans_cost() -> None:
    """The loops of all entries of a batch are one loop, and stay one."""
    (model,) = (each for each in MODELS if each.name == BATCHED[0])
    scans, _, back = RoundTrip.of(from_io(*outputs_of(model))).costs
    assert scans == Cost(20, 23, 1, 2)
    assert back == Cost(28, 32, 1, 4)
