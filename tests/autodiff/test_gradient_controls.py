"""Ops that only derivatives see count in every order, whatever the strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import disconnected_grad, grad_clip, grad_scale, zero_grad

from scanopt_cli.autodiff.differentiating import grad
from support.evaluating import evaluate
from support.graph_building import graph_of, optimized, scan

W = pt.dscalar("w")


def looped(step: Callable[[Any, Any], Any]) -> Any:
    return scan(step, outputs_info=[W * 1.0], non_sequences=[W], n_steps=3)[-1]


def looped_from(start: float, step: Callable[[Any], Any]) -> Any:
    first = pt.constant(start, dtype="float64")
    return scan(lambda h, w: step(h) + w, outputs_info=[first], non_sequences=[W], n_steps=3)


COSTS: dict[str, Any] = {
    "scaled": grad_scale(W, 2.0) ** 2 + grad_scale(W, 7.0) ** 3,
    "zero": zero_grad(W) ** 2 * W,
    "disconnected": disconnected_grad(W) ** 2 * W,
    "scaled in a loop": looped(lambda h, w: h * grad_scale(w, 2.0) + grad_scale(w, 7.0)),
    "zero in a loop": looped(lambda h, w: h * zero_grad(w)),
    "disconnected in a loop": looped(lambda h, w: h * disconnected_grad(w)),
    "a state that is disconnected": looped(lambda h, w: disconnected_grad(h) * w + w),
}


def orders(cost: Any, by: Any = W) -> list[Any]:
    found = [cost]
    for _ in range(3):
        found.append(pytensor.grad(found[-1].sum(), by, disconnected_inputs="ignore"))
    return found[1:]


@pytest.mark.tiered(every=4)
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


def squared_by(lowest: float, highest: float) -> OpFromGraph:
    """A square whose pullback's derivative is clipped."""

    def pullback(inputs: Any, _outputs: Any, cotangents: Any) -> list[Any]:
        return [cotangents[0] * 2 * grad_clip(inputs[0], lowest, highest)]

    a = pt.dscalar("a")
    return OpFromGraph([a], [a**2], pullback=pullback)


def test_two_of_one_body_stay_two() -> None:
    total = squared_by(-1, 1)(W) ** 2 + 3 * squared_by(-9, 9)(W) ** 2
    work, remarks = optimized(graph_of(total), "simplify{outer=true}")
    assert any("differ only in their derivatives" in remark for remark in remarks)
    expected = evaluate([W], orders(total)[:2], [np.array(0.7)])
    found = evaluate(work.inputs, orders(work.outputs[0], work.inputs[0])[:2], [np.array(0.7)])
    np.testing.assert_allclose(found, expected)


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


@pytest.mark.parametrize(
    "cost",
    [
        looped_from(0.0, pt.sqrt),
        looped_from(0.0, lambda h: h**0.5),
        pt.sqrt(pt.set_subtensor(looped_from(1.0, pt.exp)[0], 0.0)),
        pt.sqrt(pt.concatenate([pt.zeros(1), looped_from(1.0, pt.exp)])),
    ],
    ids=["root", "power", "written", "joined"],
)
def test_the_root_of_a_constant_zero(cost: Any) -> None:
    """Its tangent is 0 times infinity."""
    derived = grad(([W], [cost.sum()]))
    assert derived.strategy == "reverse"
    expected = evaluate([W], orders(cost.sum())[:1], [np.array(1.3)])
    found = evaluate(derived.graph.inputs, derived.graph.outputs, [np.array(1.3)])
    assert np.isfinite(expected)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    "cost", [looped_from(1.0, pt.sqrt), looped_from(0.0, lambda h: h**2 + pt.sqrt(W))]
)
def test_other_roots_are_differentiated_forwards(cost: Any) -> None:
    assert grad(([W], [cost.sum()])).strategy == "taylor"
