"""What Numba's code calls works, or raises, where Python calls it: it does not crash.

PyTensor's own tests run its Numba code as Python, without a compiler, to see what it covers.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest import mock

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core.dispatcher import Dispatcher
from pytensor.graph.basic import Variable

import scanopt_cli.loop
from scanopt_cli import loop
from support.llvm_functions import IN_LLVM

MODULES = [
    found.name
    for found in pkgutil.iter_modules(scanopt_cli.loop.__path__)
    if "jax" not in found.name  # imports JAX, and has nothing for Numba
]


@pytest.mark.parametrize("name", MODULES)
def test_no_module_holds_a_function_without_a_wrapper_for_python(name: str) -> None:
    module = import_module(f"{scanopt_cli.loop.__name__}.{name}")
    compiled = {
        called
        for called, value in vars(module).items()
        if isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__
    }
    assert not compiled


@pytest.mark.parametrize("name", IN_LLVM)
def test_a_function_that_writes_llvm_says_that_it_is_not_for_python(name: str) -> None:
    with pytest.raises(NotImplementedError, match="not usable in pure-python"):
        IN_LLVM[name](1.0)


def _as_python(inputs: list[Variable], outputs: list[Variable]) -> Callable[..., Any]:
    """Compile for Numba, with Python functions in place of all that Numba would compile."""

    def plain(*functions: Any, **_: Any) -> Any:
        if not functions:
            return plain
        functions[0].py_func = functions[0]
        return functions[0]

    with (
        pytensor.config.change_flags(numba__cache=False),
        mock.patch.object(numba.config, "DISABLE_JIT", True),
        mock.patch("pytensor.link.numba.dispatch.basic.numba_njit", plain),
        mock.patch("pytensor.link.numba.dispatch.basic.numba_typify", lambda data, **_: data),
    ):
        return pytensor.function(inputs, outputs, mode="NUMBA")


def test_a_loop_runs_as_python() -> None:
    w, h, xs = pt.dmatrix("w"), pt.dvector("h"), pt.dmatrix("xs")
    n = pt.lscalar("n")
    last, trace = loop.scan(
        lambda state, i, constants: (
            pt.cos(constants[0] @ state) * 0.5 + constants[1][i],
            state * 2,
        ),
        h,
        pt.arange(n),
        constants=(w, xs),
    )
    rng = np.random.default_rng(1)
    arguments = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=(5, 3)), 4
    compiled = pytensor.function([w, h, xs, n], [last, trace], mode="FAST_COMPILE")
    for one, other in zip(
        _as_python([w, h, xs, n], [last, trace])(*arguments), compiled(*arguments), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
