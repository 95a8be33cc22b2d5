"""Loops over numbers become one function in C, with the same values.

The rewrite is called directly, and its result is run by Python: tests do without a C compiler, and
`test_in_c` runs the values of all loops with one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.loop import Body, Loop
from scanopt_cli.loop.scalar_loops import scalar_loop
from support.evaluating import PLAIN

x, w = pt.dscalars("x", "w")
v = pt.dvector("v")
k = pt.lscalar("k")
n = pt.lscalar("n")
INPUTS = [x, w, v, k, n]


def loop_of(
    initial: list[Any], step: Callable[..., Any], *constants: Any, until: Any = None
) -> list[Variable]:
    index = pt.lscalar("index")
    states, given = [s.type() for s in initial], [c.type() for c in constants]
    following = step(index, *states, *given)
    body = Body(
        index=index,
        states=states,
        constants=given,
        next_states=following,
        condition=None if until is None else until(index, *following),
    )
    return list(Loop.from_body(body).make_node(n, *initial, *constants).outputs)


LOOPS: dict[str, Callable[[], list[Variable]]] = {
    "a map": lambda: loop_of([x], lambda i, s, c: [pt.tanh(s * c) + 0.1], w),
    "the index": lambda: loop_of([x], lambda i, s: [s * 0.5 + i]),
    "states that change places": lambda: loop_of([x, w], lambda i, a, b: [b, a + b]),
    "a constant update": lambda: loop_of(
        [x, w], lambda i, a, b: [pt.constant(2.0, dtype="float64"), a + b]
    ),
    "whole numbers": lambda: loop_of([k, x], lambda i, a, b: [a * 3 % 7 + i, b / (1 + a**2)]),
    "a state that no step changes": lambda: loop_of([x, w], lambda i, a, b: [a * b, b]),
    "a condition": lambda: loop_of(
        [x], lambda i, s, c: [s * 2 + c], w, until=lambda i, s: pt.lt(s, 20.0)
    ),
    "a condition on the index": lambda: loop_of(
        [x], lambda i, s: [s + 1], until=lambda i, s: pt.lt(i, 3)
    ),
}


def values(outputs: list[Variable], n_steps: int) -> list[np.ndarray]:
    function = pytensor.function(INPUTS, outputs, mode=PLAIN, on_unused_input="ignore")
    found: list[np.ndarray] = function(0.7, 1.3, np.ones(3), 5, n_steps)
    return found


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("n_steps", [0, 1, 6])
def test_values(name: str, n_steps: int) -> None:
    outputs = LOOPS[name]()
    node = outputs[0].owner
    made = scalar_loop.transform(None, node)
    assert isinstance(made[0].owner.op, Elemwise)
    for new, old in zip(values(made, n_steps), values(outputs, n_steps), strict=True):
        assert (new.dtype, new.shape) == (old.dtype, old.shape)
        np.testing.assert_allclose(new, old, rtol=1e-12)


def test_a_negative_number_of_steps() -> None:
    (last,) = LOOPS["a map"]()
    made = scalar_loop.transform(None, last.owner)
    with pytest.raises(ValueError, match="negative number of steps"):
        values(made, -1)


TWINS: dict[str, Callable[[], list[Variable]]] = {
    "a vector": lambda: loop_of([v], lambda i, s: [s * 2]),
    "rows of an array": lambda: loop_of([x], lambda i, s, rows: [s + rows[i]], v),
    "complex numbers": lambda: loop_of([x + 0j], lambda i, s: [s * 2]),
    "one update for two": lambda: loop_of(
        [x, w], lambda i, a, b: (lambda both: [both, both])(a + b)
    ),
    "a sort": lambda: loop_of([x], lambda i, s: [pt.sort(pt.stack([s, s * i]))[0]]),
}


@pytest.mark.parametrize("name", TWINS)
def test_twin(name: str) -> None:
    outputs = TWINS[name]()
    assert scalar_loop.transform(None, outputs[0].owner) in (None, False)
