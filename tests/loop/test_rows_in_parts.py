"""Steps in parts that read and write rows: values and errors are those of single steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from test_steps_in_parts import NUMBA, PLAIN, A, H, X, Y, compiled, is_in_parts, values

from scanopt_cli.loop import scan


def _arrays_that_read_themselves(c: Any, x: Any, y: Any, at: Any) -> tuple[Any, ...]:
    h, first, second = c
    return y * h + x, first[at].set(first[at] * 1.01 + h), second[at].set(h)


def _arrays_that_read_each_other(c: Any, x: Any, y: Any, at: Any) -> tuple[Any, ...]:
    h, first, second = c
    return y * h + x, first[at].set(second[at] * 2), second[at].set(h + first[at])


ARRAYS = {
    "themselves": _arrays_that_read_themselves,
    "each other": _arrays_that_read_each_other,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_are_read_and_written(name: str) -> None:
    """Done anew, or in another order within a step, a row would be read after it is written."""
    at, first, second = pt.lscalar("at"), pt.dvector("first"), pt.dvector("second")
    last, trace = scan(
        lambda c, xs, i: (ARRAYS[name](c, *xs, i), c[0]), (H, first, second), (X, Y), at
    )
    inputs = [X, Y, H, at, first, second]
    function, plain = (
        compiled([*last, trace], NUMBA, inputs),
        compiled([*last, trace], PLAIN, inputs),
    )
    assert not is_in_parts(function)
    for n in (5, 40, 70):
        x, y = values(n)[:2]
        y[n // 2] = 1e-200  # steps would be done anew
        given = [x, y, 0.3, 2, np.arange(4.0), np.ones(4)]
        for found, wanted in zip(
            function(*map(np.copy, given)), plain(*map(np.copy, given)), strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def _reads_where_a_state_says(h: Any, x: Any, a: Any, table: Any) -> tuple[Any, Any]:
    new = pt.switch(x > 0, a * h, 1e-300)
    return new, table[pt.switch(new < 1e299, 0, 7)] * x


def _writes_where_a_state_says(c: Any, x: Any, a: Any, _table: Any) -> tuple[Any, Any]:
    new = pt.switch(x > 0, a * c[0], 1e-300)
    at = pt.cast(pt.switch(new < 1e299, 0, 2), "int64")
    return (new, c[1][at].set(x)), new


UNSURE = {
    "a read": (_reads_where_a_state_says, H),
    "a write": (_writes_where_a_state_says, (H, Y)),
}


@pytest.mark.parametrize("name", UNSURE)
def test_states_that_decide_on_rows(name: str) -> None:
    """Factors of several steps overflow, which no state does: the steps would be done anew."""
    step, start = UNSURE[name]
    table = pt.dvector("table")
    last, trace = scan(lambda c, x, cs: step(c, x, *cs), start, X, (A, table))
    inputs = [X, Y, A, H, table]
    outputs = [*(last if isinstance(last, tuple) else [last]), trace]
    function, plain = compiled(outputs, NUMBA, inputs), compiled(outputs, PLAIN, inputs)
    x = np.ones(70)
    x[::3] = -1
    given = [x, np.zeros(3), 1e200, 0.5, np.arange(3.0)]
    for found, wanted in zip(
        function(*map(np.copy, given)), plain(*map(np.copy, given)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_errors_of_what_is_not_chosen() -> None:
    at, table = pt.lvector("at"), pt.dvector("table")

    def step(h: Any, xs: Any, rows: Any) -> tuple[Any, Any]:
        i, y = xs
        is_first = pt.eq(i, 1)
        inner = pt.switch(is_first, h, rows[i] * y)
        return pt.switch(is_first, inner * 0.5 + y, y), h

    last, trace = scan(step, H, (at, Y), table)
    function = compiled([last, trace], inputs=[at, Y, H, table])
    assert is_in_parts(function)
    given = [np.ones(70, int), values(70)[1], 0.3, np.ones(3)]
    function(*given)
    given[0][50] = 9
    with pytest.raises(IndexError):
        function(*given)
