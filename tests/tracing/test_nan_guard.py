"""Functions that say where a NaN that they return was made."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.executor import Function
from pytensor.compile.maker import FunctionMaker

import scanopt_cli as so
from support.graph_building import scan
from support.tiers import deep

pytestmark = pytest.mark.usefixtures("evaluated_here")
MODES = ["FAST_RUN", "FAST_COMPILE", *deep("NUMBA")]


def _logs() -> tuple[list[Any], list[Any]]:
    v, x = pt.dvector("v"), pt.dscalar("x")
    ys = scan(lambda a, y: pt.log(a) + 0.1 * y, sequences=[v], outputs_info=[x], name="logs")
    return [v, x], [ys[-1], pytensor.grad(ys[-1], v)]


@pytest.mark.parametrize("mode", MODES)
def test_where_a_nan_was_made(mode: str) -> None:
    with so.nan_guard() as guard:
        function = pytensor.function(*_logs(), mode=mode)
    plain = pytensor.function(*_logs(), mode=mode)
    good = np.linspace(0.5, 1.0, 9)
    for one, other in zip(function(good, 1.0), plain(good, 1.0), strict=True):
        np.testing.assert_array_equal(one, other)
    good[4] = -1.0
    with pytest.raises(so.NanError, match=r"log\(a\[t\]\) in step 4 of logs") as caught:
        function(good, 1.0)
    assert "it reads a[t] = -1" in str(caught.value)
    found = caught.value.found
    assert found.node.why == "domain"
    assert guard.found == [found]
    # It works on as before.
    assert np.isfinite(function(np.ones(3), 1.0)[0])


@pytest.mark.parametrize("mode", MODES)
def test_twin_what_a_step_masks_is_no_error_and_its_gradient_is(mode: str) -> None:
    """A maximum takes no infinity: the value is right, and the gradient is a NaN.

    Of a switch, PyTensor's rewrites mend the gradient.
    """
    v, x = pt.dvector("v"), pt.dscalar("x")
    steps = scan(
        lambda a, y: pt.maximum(pt.log(a), -4.0) + 0.5 * y,
        sequences=[v],
        outputs_info=[x],
        name="masked",
    )
    given = np.array([1.0, 0.0, 1.0])
    with so.nan_guard() as guard:
        right = pytensor.function([v, x], steps[-1], mode=mode)
        wrong = pytensor.function([v, x], pytensor.grad(steps[-1], v), mode=mode)
    assert right(given, 1.0) == -1.875
    assert guard.found == []
    with pytest.raises(so.NanError, match="in step 1 of grad_of_masked"):
        wrong(given, 1.0)


def test_inside_of_enabled() -> None:
    with so.enabled(cache=False), so.nan_guard():
        function = pytensor.function(*_logs(), mode="FAST_RUN")
    with pytest.raises(so.NanError, match="in step 1 of logs"):
        function(np.array([1.0, -1.0, 1.0]), 1.0)


def test_warnings_in_place_of_errors() -> None:
    with so.nan_guard(raises=False) as guard:
        function = pytensor.function(*_logs())
    with pytest.warns(RuntimeWarning, match="in step 0 of logs"):
        values = function(np.array([-1.0]), 1.0)
    assert np.isnan(values[0])
    assert (guard.functions, len(guard.found)) == (1, 1)
    assert repr(guard) == "<NanGuard: 1 function; 1 call returned a NaN or infinity>"


def test_infinities_are_allowed() -> None:
    with so.nan_guard(allow="inf"):
        function = pytensor.function(*_logs())
    assert function(np.array([0.0, 1.0]), 1.0)[0] == -np.inf
    with so.nan_guard():
        function = pytensor.function(*_logs())
    with pytest.raises(so.NanError, match="it is infinite at zero"):
        function(np.array([0.0, 1.0]), 1.0)
    with pytest.raises(so.ScanoptError, match="allow inf"), so.nan_guard(allow="everything"):
        pass


def test_what_arguments_hold_is_named() -> None:
    with so.nan_guard():
        function = pytensor.function(*_logs())
    with pytest.raises(so.NanError, match="is from the inputs"):
        function(np.array([np.nan, 1.0]), 1.0)


def test_shared_variables_are_as_they_were_before_the_call() -> None:
    state = pytensor.shared(np.asarray(1.0), name="state")
    ys = scan(lambda y: pt.sqrt(y) - 0.5, outputs_info=[state], n_steps=2, name="roots")
    with so.nan_guard():
        function = pytensor.function([], ys[-1], updates={state: state - 1.0})
    function()
    with pytest.raises(so.NanError, match="in step 1 of roots"):
        function()
    assert float(state.get_value()) == -1.0


def test_functions_without_loops_and_outside_of_the_block_are_as_ever() -> None:
    create = FunctionMaker.create
    x = pt.dscalar("x")
    with so.nan_guard() as guard:
        assert FunctionMaker.create is not create
        assert type(pytensor.function([x], pt.log(x))) is Function
        guarded = pytensor.function(*_logs())
    assert FunctionMaker.create is create
    assert guard.functions == 1
    assert type(pytensor.function(*_logs())) is Function
    assert type(guarded.copy()) is Function
    assert type(pickle.loads(pickle.dumps(guarded))) is Function


def test_large_sums_are_no_infinities() -> None:
    v = pt.dvector("v")
    with so.nan_guard() as guard:
        function = pytensor.function([v], scan(lambda a: a * 1.0, sequences=[v]))
    assert np.isfinite(function(np.array([1e308, 1e308]))).all()
    assert not guard.found
