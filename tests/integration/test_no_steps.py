"""One policy for loops of no steps: what plain PyTensor raises, the compiled function raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.conditional.op import ifelse

import scanopt_cli as so
from support.compiled_ways import NUMBA, VM
from support.evaluating import PLAIN
from support.graph_building import scan

N = pt.lscalar("n")
V, W = pt.dvectors("v", "w")
ARGUMENTS = [np.array([1.0, 2.0]), np.array([0.5, 1.5])]
WAYS = ["default", "grad", "loop"]


def last_of_states() -> Any:
    return scan(lambda h, w: h * w + 1, outputs_info=[V], non_sequences=[W], n_steps=N)[-1]


def last_of_two_taps() -> Any:
    taps = {"initial": pt.stack([V, V * 2]), "taps": [-2, -1]}
    return scan(lambda a, b, w: b * w + a, outputs_info=[taps], non_sequences=[W], n_steps=N)[-1]


def last_of_outer_products() -> Any:
    """A sum that `push-out-sums` computes in one product."""
    start = pt.zeros((2, 2))
    rows = pt.outer(pt.ones(N), V)
    step: Any = lambda r, u, w: u + pt.outer(r, w)  # noqa: E731
    return scan(step, sequences=[rows], outputs_info=[start], non_sequences=[W])[-1]


def outcome(function: Any, count: int) -> Any:
    try:
        return [np.asarray(value) for value in function(count, *ARGUMENTS)]
    except IndexError:
        return "IndexError"


def derivatives(row: Any) -> dict[str, Any]:
    cost = (row**2).sum()
    first = pt.grad(cost, W)
    return {"value": row, "gradient": first, "second": pt.grad(first.sum(), W, **_DISCONNECTED)}


_DISCONNECTED = {"disconnected_inputs": "ignore"}


def check(outputs: dict[str, Any], preset: str, mode: Mode) -> None:
    inputs = [N, V, W]
    for name, output in outputs.items():
        plain = pytensor.function(inputs, [output], mode=PLAIN, on_unused_input="ignore")
        with so.enabled(preset):
            function = pytensor.function(inputs, [output], mode=mode, on_unused_input="ignore")
        assert outcome(plain, 0) == "IndexError"
        assert outcome(function, 0) == "IndexError", name
        for count in (1, 4):
            np.testing.assert_allclose(outcome(function, count)[0], outcome(plain, count)[0])


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("preset", WAYS)
@pytest.mark.parametrize("row", [last_of_states, last_of_two_taps, last_of_outer_products])
def test_the_virtual_machine(row: Any, preset: str) -> None:
    check({"value": row(), "gradient": derivatives(row())["gradient"]}, preset, VM)


@pytest.mark.deep
@pytest.mark.parametrize("preset", WAYS)
@pytest.mark.parametrize("row", [last_of_states, last_of_two_taps, last_of_outer_products])
def test_numba_and_second_derivatives(row: Any, preset: str) -> None:
    check(derivatives(row()), preset, NUMBA)


def check_branches(preset: str, mode: Mode) -> None:
    """As people write loops that may run no step; Numba computes both branches."""
    xs = scan(lambda h, w: h * w + 1, outputs_info=[V], non_sequences=[W], n_steps=N)
    either = ifelse(N > 0, xs[-1], V * 3) + W
    inputs = [N, V, W]
    for output in (either, pt.grad(either.sum(), V)):
        plain = pytensor.function(inputs, [output], mode=PLAIN, on_unused_input="ignore")
        with so.enabled(preset):
            function = pytensor.function(inputs, [output], mode=mode, on_unused_input="ignore")
        for count in (1, 4, 0):
            wanted = outcome(plain, count)
            if wanted != "IndexError":
                np.testing.assert_allclose(outcome(function, count)[0], wanted[0])


@pytest.mark.parametrize("preset", WAYS)
def test_a_branch_for_no_steps(preset: str) -> None:
    check_branches(preset, VM)


@pytest.mark.deep
@pytest.mark.parametrize("preset", ["default", "loop"])
def test_a_branch_for_no_steps_by_numba(preset: str) -> None:
    check_branches(preset, NUMBA)
