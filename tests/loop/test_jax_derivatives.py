"""What JAX does with loops itself: gradients, batches. Needs the extra ``scanopt[jax]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scan.utils import until

import scanopt_cli as so
from scanopt_cli import loop
from support.graph_building import scan

jax = pytest.importorskip("jax")
pytestmark = [
    pytest.mark.jax,
    pytest.mark.filterwarnings("ignore:.*requested in .* is not available"),
    pytest.mark.filterwarnings("ignore:Skipping"),
]

X, S, V = pt.dscalar("x"), pt.dvector("s"), pt.dvector("v")
SERIES, LONGER = np.array([0.5, -0.3, 0.8, 0.1]), np.linspace(-1, 1, 6)


def moved(*values: Any) -> Any:
    """Return the sine of the last value, plus the others times it."""
    *rows, before = values
    return pt.sin(before) + sum(row * before for row in rows)


def last(**options: Any) -> Any:
    return scan(moved, outputs_info=[X], **options)[-1]


def nested(inner: Callable[[Any, Any], Any]) -> Any:
    return scan(lambda row, x: inner(row, x), sequences=[S], outputs_info=[X])[-1]


def until_large() -> Any:
    return scan(lambda x: (2 * x + pt.sin(x), until(x > 3)), outputs_info=[X], n_steps=9)[-1]


PROGRAMS = {
    "constant steps": lambda: last(n_steps=5),
    "constant steps, a trace": lambda: scan(moved, outputs_info=[X], n_steps=5).sum(),
    "a sequence": lambda: last(sequences=[S]),
    "two sequences": lambda: last(sequences=[S, V]),
    "taps of a sequence": lambda: last(sequences=[{"input": S, "taps": [-1, 0]}]),
    "steps from a shape": lambda: last(n_steps=2 * S.shape[0] - pt.minimum(S.shape[0], 3)),
    "nested": lambda: nested(
        lambda row, x: scan(lambda c: row * pt.sin(c), outputs_info=[x], n_steps=3)[-1]
    ),
    "nested, of the length of a part": lambda: nested(
        lambda row, x: scan(moved, sequences=[V[:-1]], outputs_info=[row * x])[-1]
    ),
    "a gradient": lambda: pytensor.grad(last(sequences=[S]), X),
    "a condition": until_large,
    "a condition that holds on": lambda: scan(
        lambda x: (2 * x, until(x > 1e9)), outputs_info=[X], n_steps=4
    )[-1],
}


def compiled(output: Any, mode: str) -> Any:
    return pytensor.function([X, S, V], output, mode=mode, on_unused_input="ignore")


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_and_batches(name: str) -> None:
    output = PROGRAMS[name]()
    with so.enabled() as done:
        function = compiled(output, "JAX")
    assert done.compilations[0].after.scans == 0
    pure: Any = lambda x: function.vm.jit_fn(x, SERIES, LONGER)[0]  # noqa: E731
    plain = compiled([output, pytensor.grad(output, X)], "FAST_COMPILE")
    for x in (0.3, 0.7):
        value, slope = plain(x, SERIES, LONGER)
        np.testing.assert_allclose(function(x, SERIES, LONGER), value)
        np.testing.assert_allclose(jax.grad(pure)(x), slope)
        np.testing.assert_allclose(jax.jvp(pure, (x,), (1.0,))[1], slope)
    many = np.array([0.3, 0.7, 2.5])
    expected = [plain(x, SERIES, LONGER) for x in many]
    np.testing.assert_allclose(jax.vmap(pure)(many), [value for value, _ in expected])
    np.testing.assert_allclose(jax.vmap(jax.grad(pure))(many), [slope for _, slope in expected])


def test_gradients_by_what_a_loop_does_not_change() -> None:
    w = pt.dvector("w")
    output = scan(
        lambda x, w: (x * w.sum() + w[0], until(x > 3)),
        outputs_info=[X],
        non_sequences=[w],
        n_steps=20,
    )[-1]
    with so.enabled():
        function = pytensor.function([X, w], output, mode="JAX")
    plain = pytensor.function([X, w], pytensor.grad(output, w), mode="FAST_COMPILE")
    at = (0.5, np.array([0.7, 0.9]))
    found = jax.grad(lambda x, w: function.vm.jit_fn(x, w)[0], argnums=1)(*at)
    np.testing.assert_allclose(found, plain(*at))


def test_a_state_of_whole_numbers_beside_one_with_a_derivative() -> None:
    n = pt.constant(0, dtype="int64")
    _, values = scan(
        lambda n, x: ([n + 1, x * (n + 2)], until(n >= 2)), outputs_info=[n, X], n_steps=50
    )
    with so.enabled():
        function = pytensor.function([X], values[-1], mode="JAX")
    assert function(0.5) == 12.0
    assert jax.grad(lambda x: function.vm.jit_fn(x)[0])(0.5) == 24.0


def test_a_loop_of_very_many_steps_is_not_run_to_its_end() -> None:
    output = scan(lambda x: (2 * x, until(x > 9)), outputs_info=[X], n_steps=10**12)[-1]
    with so.enabled():
        function = pytensor.function([X], output, mode="JAX")
    assert function(1.0) == 32.0
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(lambda x: function.vm.jit_fn(x)[0])(1.0)


def test_a_number_of_steps_that_is_an_input_stays_one() -> None:
    n = pt.lscalar("n")
    output, _ = loop.scan(lambda c, _: (pt.sin(c) + c, None), X, max_steps=n + S.shape[0])
    function = pytensor.function([n, X, S], output, mode="JAX")
    plain = pytensor.function([n, X, S], output, mode="FAST_COMPILE")
    for n_steps in (0, 3):
        np.testing.assert_allclose(function(n_steps, 0.3, SERIES), plain(n_steps, 0.3, SERIES))
