"""Ops that only derivatives see count in every order, whatever the strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import disconnected_grad, grad_scale, zero_grad

from evaluating import evaluate
from graph_building import graph_of, optimized, scan
from scanopt_cli.autodiff.differentiating import grad

W = pt.dscalar("w")


def looped(step: Callable[[Any, Any], Any]) -> Any:
    return scan(step, outputs_info=[W * 1.0], non_sequences=[W], n_steps=3)[-1]


COSTS: dict[str, Any] = {
    "scaled": grad_scale(W, 2.0) ** 2 + grad_scale(W, 7.0) ** 3,
    "zero": zero_grad(W) ** 2 * W,
    "disconnected": disconnected_grad(W) ** 2 * W,
    "scaled in a loop": looped(lambda h, w: h * grad_scale(w, 2.0) + grad_scale(w, 7.0)),
    "zero in a loop": looped(lambda h, w: h * zero_grad(w)),
    "disconnected in a loop": looped(lambda h, w: h * disconnected_grad(w)),
    "a state that is disconnected": looped(lambda h, w: disconnected_grad(h) * w + w),
}


def orders(cost: Any) -> list[Any]:
    found = [cost]
    for _ in range(3):
        found.append(pytensor.grad(found[-1].sum(), W, disconnected_inputs="ignore"))
    return found[1:]


@pytest.mark.parametrize("strategy", ["taylor", "forward", "forward-over-reverse", "reverse"])
@pytest.mark.parametrize("name", COSTS)
def test_they_count_in_each_order(name: str, strategy: str) -> None:
    expected = evaluate([W], orders(COSTS[name]), [np.array(3.0)])
    # PyTensor refuses the derivative of the loop that it makes of the last one.
    highest = 1 if (name, strategy) == ("a state that is disconnected", "reverse") else 3
    for order in range(1, highest + 1):
        derived = grad(([W], [COSTS[name]]), order=order, strategy=strategy).graph
        (found,) = evaluate(derived.inputs, derived.outputs, [np.array(3.0)])
        np.testing.assert_allclose(found, expected[order - 1], err_msg=f"order {order}")


@pytest.mark.parametrize("name", COSTS)
def test_they_count_after_passes(name: str) -> None:
    """The presets trim loops, which PyTensor then differentiates wrongly."""
    passes = "merge-equal,simplify{outer=true},merge-duplicates,push-out,remove-zeros,clean-slices"
    work, _ = optimized(graph_of(COSTS[name]), passes)
    (expected, *_) = evaluate([W], orders(COSTS[name]), [np.array(3.0)])
    derived = grad(work, strategy="reverse").graph
    np.testing.assert_allclose(
        evaluate(derived.inputs, derived.outputs, [np.array(3.0)]), [expected]
    )
