"""Ranges hold every value that an expression has, whatever the inputs are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.value_ranges import ANY, Range, ValueRanges, of_dtype, step_ranges
from scanopt_cli.ir.graph import from_io
from support.evaluating import PLAIN
from support.graph_building import scan, scan_views

x = pt.dscalar("x")
v = pt.dvector("v")
b = pt.bscalar("b")

KNOWN: dict[str, tuple[Variable, Range]] = {
    "an input": (x, ANY),
    "an int8": (b, Range(-128, 127)),
    "a boolean": (x > 0, Range(0, 1)),
    "a constant": (pt.constant(np.array([1.0, -3.0])), Range(-3, 1)),
    "a sigmoid": (pt.sigmoid(v), Range(0, 1)),
    "one less a sigmoid": (1 - pt.sigmoid(v), Range(0, 1)),
    "a product of two": (pt.sigmoid(v) * pt.sigmoid(x), Range(0, 1)),
    "a sum of two": (pt.sigmoid(v) + pt.tanh(x), Range(-1, 2)),
    "a negated one": (-pt.sigmoid(v), Range(-1, 0)),
    "a softmax": (pt.special.softmax(v, axis=0)[0], Range(0, 1)),
    "a clipped number": (pt.clip(x, -1, 2), Range(-1, 2)),
    "a minimum": (pt.minimum(x, 3.0), Range(-math.inf, 3)),
    "a maximum": (pt.maximum(pt.tanh(x), 0.5), Range(0.5, 1)),
    "an exponential": (pt.exp(x), Range(math.ulp(0.0), math.inf)),
    "of a negative number": (pt.exp(-(x**2)), Range(math.ulp(0.0), 1)),
    "a square": (pt.sqr(pt.tanh(x) + 2), Range(1, 9)),
    "a product that may be negative": (pt.tanh(x) * pt.tanh(v), Range(-1, 1)),
    "a power": (pt.sigmoid(x) ** 0.5, Range(0, 1)),
    "an even power": (x**4, Range(0, math.inf)),
    "a quotient": (1 / (1 + pt.exp(x)), Range(0, 1)),
    "a switch": (pt.switch(x > 0, pt.sigmoid(x), 2.0), Range(0, 2)),
    "an absolute value": (pt.abs(pt.tanh(x) - 3), Range(2, 4)),
    "a sum over an axis": (pt.sigmoid(v).sum(), Range(0, math.inf)),
    "a largest one": (pt.tanh(v).max(), Range(-1, 1)),
    "a row": (pt.sigmoid(v)[1:], Range(0, 1)),
    "a join": (pt.concatenate([pt.sigmoid(v), pt.tanh(v)]), Range(-1, 1)),
    "a vector of numbers": (pt.stack([pt.sigmoid(x), pt.tanh(x)]), Range(-1, 1)),
    "a length": (v.shape[0], Range(0, 2**63 - 1)),
    "a cast": (pt.cast(pt.sigmoid(x) * 9, "int8"), Range(0, 9)),
    "a fraction, as a boolean": (pt.cast(pt.clip(x, 0.2, 0.5), "bool"), Range(1, 1)),
    "a fraction or 0, as a boolean": (pt.cast(pt.clip(x, 0.0, 0.5), "bool"), Range(0, 1)),
    "a negative one, as a boolean": (pt.cast(pt.clip(x, -9.0, -0.5), "bool"), Range(1, 1)),
    "any number, as a boolean": (pt.cast(x, "bool"), Range(0, 1)),
    "an integer, as a boolean": (pt.cast(pt.clip(b, 2, 3), "bool"), Range(1, 1)),
    "0, as a boolean": (pt.cast(pt.clip(b, 0, 0), "bool"), Range(0, 0)),
    "a fraction, cut off": (pt.cast(pt.clip(x, -1.5, 0.5), "int64"), Range(-1, 0)),
    "a number that may not fit": (pt.cast(pt.clip(x, 0.0, 300.5), "int8"), Range(-128, 127)),
    "any number, as an integer": (pt.cast(x, "int16"), Range(-(2**15), 2**15 - 1)),
    "a negative one, without a sign": (pt.cast(pt.clip(b, -1, 3), "uint8"), Range(0, 255)),
    "one without a sign, narrower": (pt.cast(pt.cast(b, "uint8"), "int8"), Range(-128, 127)),
    "an integer, as a float": (pt.cast(pt.clip(b, -1, 3), "float32"), Range(-1, 3)),
    "bounds that cross": (pt.clip(x, pt.tanh(v) + 4, 2.0), Range(2, 5)),
    "a remainder": (b % np.int8(7), Range(0, 7)),
    "an integer that may wrap": (b + np.int8(1), Range(-128, 127)),
    "nothing known": (pt.log(x), ANY),
}


@pytest.mark.parametrize("name", KNOWN)
def test_ranges(name: str) -> None:
    variable, wanted = KNOWN[name]
    found = ValueRanges().of(variable)
    assert wanted.low == pytest.approx(found.low)
    assert wanted.high == pytest.approx(found.high)


_NUMBERS = st.floats(-50, 50, allow_nan=False)
_ARGUMENTS = st.tuples(_NUMBERS, st.lists(_NUMBERS, min_size=2, max_size=3), st.integers(-128, 127))
_FUNCTION = pytensor.function([x, v, b], [v for v, _ in KNOWN.values()], mode=PLAIN)


@given(arguments=_ARGUMENTS)
def test_every_value_is_in_its_range(arguments: tuple[float, list[float], int]) -> None:
    with np.errstate(all="ignore"):
        values: list[Any] = _FUNCTION(*arguments)
    for value, (name, (variable, _)) in zip(values, KNOWN.items(), strict=True):
        found = ValueRanges().of(variable)
        numbers = np.asarray(value, dtype=float)
        inside = (numbers >= found.low - 1e-12) & (numbers <= found.high + 1e-12)
        # An exponential that underflows is zero.
        is_small = np.abs(numbers) < 1e-300
        assert (inside | np.isnan(numbers) | is_small).all(), name


def test_a_step_reads_what_is_outside() -> None:
    ys = scan(
        lambda p, s, q: s * p * q,
        sequences=[pt.sigmoid(v)],
        outputs_info=[x],
        non_sequences=[pt.tanh(x)],
    )
    (view,) = scan_views(from_io([v, x], [ys]).fgraph)
    ranges = step_ranges(view)
    found = {slot.label: ranges.of(slot.inner_inputs[0]) for slot in view.slots if slot.has_input}
    assert found["seq[0]"] == Range(0, 1)
    assert found["non_seq[0]"] == Range(-1, 1)
    assert found["sit_sot[0]"] == ANY


def test_the_square_of_a_complex_number_may_be_negative() -> None:
    assert ValueRanges().of(pt.sqr(pt.zscalar())) == ANY


def test_dtypes() -> None:
    assert of_dtype("uint8") == Range(0, 255)
    assert of_dtype("bool") == Range(0, 1)
    assert of_dtype("float32") == ANY
