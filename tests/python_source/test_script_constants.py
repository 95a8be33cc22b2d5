"""Constants come back bit by bit: as numbers in the script, or in the file beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

import scanopt_cli as so
from support.python_scripts import assert_rebuilt, built_by

_NUMBERS = [
    *(0.0, -0.0, 1.0, 0.1, -0.1, 1e300, 5e-324, np.nan, -np.nan, np.inf, -np.inf),
    *(np.float32(0.1), np.float32(np.nan), np.float32(-0.0), np.float16(0.3)),
    *(True, False, 0, 3, -3, 2**62, np.int8(-128), np.uint8(255), np.int16(7), np.uint64(2**63)),
    *(1j, complex(-0.0, np.nan), complex(np.inf, -0.0), np.complex64(1 + 2j)),
]


@pytest.mark.parametrize("value", _NUMBERS, ids=repr)
def test_numbers(value: Any) -> None:
    number = np.asarray(value)
    for constant in (pt.constant(number), pt.constant(value)):
        like = pt.zeros((), dtype=constant.dtype)
        assert_rebuilt(([], [constant, pt.eq(constant, like), constant[None]]))
        x = pt.vector("x", dtype=constant.dtype)
        assert_rebuilt(([x], [x + constant, constant * x, pt.stack([constant, x[0]])]))


def test_a_nan_of_other_bits() -> None:
    odd = np.array(0x7FF8_0000_0000_0123).view(np.float64)
    script = so.to_python(([], [pt.constant(odd) + 1.0]))
    assert [array.tobytes() for array in script.constants.values()] == [odd.tobytes()]
    assert_rebuilt(([], [pt.constant(odd) + 1.0]))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "uint16", "bool", "complex128"])
@pytest.mark.parametrize("shape", [(0,), (3,), (0, 3), (2, 0), (1, 1), (3, 4), (100,), (2, 3, 4)])
def test_arrays(shape: tuple[int, ...], dtype: str) -> None:
    value = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    assert_rebuilt(([], [pt.constant(value), pt.constant(value) * 2]))


def test_short_arrays_stand_in_the_script_and_long_ones_beside_it() -> None:
    short, long = np.array([1.5, -0.0, np.nan]), np.arange(100.0)
    x = pt.dvector("x")
    script = so.to_python(([x], [x[:3] + short, x + pt.constant(long, name="weights")]))
    assert "[1.5, -0.0, np.nan]" in script.text
    assert [*script.constants] == ["weights"]
    np.testing.assert_array_equal(script.constants["weights"], long)


def test_no_file_is_read_without_long_arrays() -> None:
    x = pt.dscalar("x")
    script = so.to_python(([x], [x + 1]))
    assert not script.constants
    assert "numpy" not in script.text
    assert built_by(script)["inputs"][0].type == x.type


def test_constants_whose_type_says_less_than_their_value() -> None:
    data = np.arange(3.0)
    loose = TensorConstant(TensorType("float64", (None,)), data)
    assert_rebuilt(([], [pt.exp(loose), ps.constant(2.5), pt.constant(data) + loose]))


def test_static_shapes_and_dtypes_of_inputs_are_exact() -> None:
    kinds = [
        pt.tensor(dtype=dtype, shape=shape)
        for dtype in ("float32", "int16", "bool")
        for shape in ((), (None,), (3, None), (1, 1), (None,) * 8)
    ]
    script = so.to_python((kinds, [kind.sum() for kind in kinds]))
    assert [v.type for v in built_by(script)["inputs"]] == [v.type for v in kinds]
