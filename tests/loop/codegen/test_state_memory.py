"""States of long arrays: no step copies them, and none takes more memory than it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Composite
from pytensor.scalar.basic import float64 as scalar_float64
from pytensor.tensor.elemwise import Elemwise

import scanopt_cli as so
from scanopt_cli.loop import Body, Loop
from scanopt_cli.loop.memory import overwrite_own_states
from support.compiled_ways import NUMBA, VM, compiled
from support.direct_code import counted_memory
from support.graph_building import scan

n, START = pt.lscalar("n"), pt.dmatrix("start")


def _two_taps() -> list[Any]:
    taps = {"initial": pt.stack([START, START]), "taps": [-2, -1]}
    rows = scan(lambda a, b: b + 0.5 * (b - a) + 0.1, outputs_info=[taps], n_steps=n)
    return [rows[-1]]


def _map() -> list[Any]:
    made = scan(lambda x: (x + 0.1, x * 2), outputs_info=[START, None], n_steps=n)
    return [made[1][-1]]


def _swapped() -> list[Any]:
    made = scan(lambda a, b: (b, a + 0.5 * b), outputs_info=[START, START], n_steps=n)
    return [v[-1] for v in made]


def _read_by_others() -> list[Any]:
    """What the map computes is read in the step again, and by the next one."""
    made = scan(
        lambda x, y: (x + 0.1 * y, x * 2, (x * 2).sum(axis=0)),
        outputs_info=[START, START, None],
        n_steps=n,
    )
    return [v[-1] for v in made]


def _two_that_nobody_reads() -> list[Any]:
    made = scan(
        lambda x: (x * 0.9, pt.exp(x), pt.exp(x) * x), outputs_info=[START, None, None], n_steps=n
    )
    return [made[0][-1], made[1][-1], made[2][-1]]


LOOPS: dict[str, Callable[[], list[Any]]] = {
    "two taps": _two_taps,
    "a map": _map,
    "states in turn": _swapped,
    "a state that is read": _read_by_others,
    "two maps": _two_that_nobody_reads,
}


@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "NUMBA"])
@pytest.mark.parametrize("name", LOOPS)
def test_values(name: str, mode: Any) -> None:
    outputs = LOOPS[name]()
    wanted = compiled([n, START], outputs, "FAST_COMPILE")
    with so.enabled("loop"):
        found = pytensor.function([n, START], outputs, mode=mode)
    for steps in (1, 2, 3, 8):
        for shape in ((2, 3), (1, 1), (3, 0)):
            start = np.random.default_rng(steps).normal(size=shape)
            kept = start.copy()
            for new, old in zip(found(steps, start), wanted(steps, start), strict=True):
                np.testing.assert_allclose(new, old, rtol=1e-12)
            np.testing.assert_array_equal(start, kept)


@pytest.mark.parametrize("name", ["two taps", "a map", "states in turn"])
def test_blocks_of_memory(name: str) -> None:
    """However many the steps, two arguments and two states take a block each."""
    with so.enabled("loop"):
        function = pytensor.function([n, START], LOOPS[name](), mode=NUMBA)
    start = np.ones((40, 50))
    function(2, start)
    for steps in (3, 30):
        with counted_memory() as counts:
            before = counts().alloc
            function(steps, start)
            assert counts().alloc - before == 4


X, Y = pt.dmatrices("x", "y")


def _after(n_steps: int, starts: list[Any], step: Callable[..., list[Any]]) -> Any:
    states = [pt.dmatrix() for _ in starts]
    body = Body(index=pt.lscalar(), states=states, next_states=step(*states))
    outputs = Loop.over(n_steps, body, starts, {})
    return pytensor.function([X, Y], outputs, mode=NUMBA, on_unused_input="ignore")


@pytest.mark.parametrize("n_steps", [0, 1, 2, 5])
def test_twin_states_that_start_with_other_lengths(n_steps: int) -> None:
    """A state that takes the value of another one has its own lengths before the first step."""
    x, y = np.ones((2, 3)), np.full((4, 5), 2.0)
    found = _after(n_steps, [X, Y], lambda a, b: [b, b * 0.5])(x, y)
    expected = [x, y]
    for _ in range(n_steps):
        expected = [expected[1], expected[1] * 0.5]
    for new, old in zip(found, expected, strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("n_steps", [0, 1, 2, 5])
def test_twin_states_that_start_with_equal_lengths_and_change_them(n_steps: int) -> None:
    x = np.arange(6.0).reshape(2, 3)
    found = _after(n_steps, [X, X, X], lambda a, b, c: [b, c, pt.join(0, c, c) + 1])(x, x)
    expected = [x, x, x]
    for _ in range(n_steps):
        last = expected[2]
        expected = [*expected[1:], np.concatenate([last, last]) + 1]
    for new, old in zip(found, expected, strict=True):
        np.testing.assert_array_equal(new, old)


def test_twin_a_state_that_no_step_reads_of_another_shape() -> None:
    """It starts with the shape of `y`, and is computed of `x`."""
    x, y = np.ones((2, 3)), np.zeros((4, 5))
    for n_steps in (0, 1, 3):
        found = _after(n_steps, [X, Y], lambda a, b: [a + 1, a * 2])(x, y)
        expected = (x + n_steps, (x + n_steps - 1) * 2 if n_steps else y)
        for new, old in zip(found, expected, strict=True):
            np.testing.assert_array_equal(new, old)


def test_the_next_value_of_a_state_is_where_the_state_was() -> None:
    """PyTensor puts the first of two results there, of which the second is the next state."""
    x, y = pt.dvectors("x", "y")
    a = scalar_float64()
    both = Elemwise(Composite([a], [a * 2, a + 1]), {0: 0})(x)
    body = FunctionGraph([pt.lscalar(), x, y], [both[1], both[0]], clone=False)
    overwrite_own_states(body, 2)
    assert body.outputs[0].owner.op.inplace_pattern == {1: 0}
    overwrite_own_states(body, 2)
    assert body.outputs[0].owner.op.inplace_pattern == {1: 0}
