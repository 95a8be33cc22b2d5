"""What PyTensor's own push-outs do well, `enabled` does as well, by every preset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import graph_inputs

import scanopt_cli as so
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import is_loop
from support.graph_building import scan

A, B, W = pt.dmatrices("A", "B", "W")
v = pt.dvector("v")
n = pt.lscalar("n")
_RNG = np.random.default_rng(0)
VALUES = {
    "A": _RNG.normal(size=(7, 3)),
    "B": _RNG.normal(size=(7, 2)),
    "W": _RNG.normal(size=(3, 2)),
    "v": _RNG.normal(size=3),
}


def sums() -> Any:
    """Return the buffer of a state that adds up outer products."""
    return scan(
        lambda a, b, total: total + pt.outer(a, b),
        sequences=[A, B],
        outputs_info=[pt.zeros((A.shape[1], B.shape[1]))],
    ).owner.inputs[0]


def products() -> Any:
    return scan(lambda vector, matrix: vector @ matrix, non_sequences=[v, W], n_steps=n)


WITHOUT_LOOPS: dict[str, Callable[[], Any]] = {
    "a sum of outer products": lambda: sums()[-1],
    "a map of values that do not change": products,
}


def arguments(inputs: list[Any], steps: int) -> list[Any]:
    return [
        steps if x is n else VALUES[str(x.name)][: steps if x in (A, B) else None] for x in inputs
    ]


@pytest.mark.parametrize("preset", ["default", "grad", "loop"])
@pytest.mark.parametrize("name", WITHOUT_LOOPS)
def test_without_a_loop(name: str, preset: str) -> None:
    output = WITHOUT_LOOPS[name]()
    inputs = [x for x in (A, B, W, v, n) if x in set(graph_inputs([output]))]
    plain = pytensor.function(inputs, output, mode="FAST_COMPILE")
    with so.enabled(preset):
        function = pytensor.function(inputs, output, mode="CVM")
    assert not any(is_loop(node) for node in walk(function.maker.fgraph))
    for steps in (0, 1, 5):
        expected, found = (f(*arguments(inputs, steps)) for f in (plain, function))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected)


@pytest.mark.jax
@pytest.mark.filterwarnings("ignore:Skipping")
def test_a_map_of_values_that_do_not_change_in_jax() -> None:
    pytest.importorskip("jax")
    output = scan(
        lambda vector, matrix: vector @ matrix,
        sequences=[],
        non_sequences=[v, W],
        n_steps=v.shape[0] - 1,
    )
    with so.enabled():
        function = pytensor.function([v, W], output, mode="JAX")
    np.testing.assert_allclose(function(VALUES["v"], VALUES["W"]), [VALUES["v"] @ VALUES["W"]] * 2)
