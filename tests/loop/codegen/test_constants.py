"""Constants that are arrays."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
import pytest
from llvmlite import ir
from numba.core.registry import cpu_target

from scanopt_cli.loop.codegen.writer import Writer
from support.direct_code import check


def test_constants_of_one_column_are_broadcast() -> None:
    column = np.array([[1.0], [2.0]])
    cases = [[np.arange(2.0 * n).reshape(2, n)] for n in (0, 1, 3, 9)]
    check(lambda one: one * pt.constant(column), [(None, None)], cases, lambda one: one * column)


def test_known_integers_are_cast_while_code_is_written() -> None:
    """PyTensor's constant indices are of the smallest dtype that holds them."""
    cases = [[np.arange(12.0).reshape(4, 3)]]
    check(lambda x: [x[3, 2], x[-1, 1:], x[::-2], x[1:-1, 0]], [(4, 3)], cases)


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        (-1, "int8", "int64"),
        (255, "uint8", "int64"),
        (2**64 - 1, "uint64", "int64"),
        (2**63 - 1, "int64", "float64"),
        (-3, "int64", "uint16"),
        (300, "int64", "int8"),
        (2, "uint8", "bool"),
        (0, "int32", "bool"),
    ],
)
def test_casts_of_known_integers(value: int, source: str, target: str) -> None:
    writer = Writer(cpu_target.target_context, ir.IRBuilder(), {}, [])
    made = writer.cast(writer.number(value, source), target)
    wanted = np.asarray(value, source).astype(target)[()]
    assert np.asarray(made.code.constant, target) == wanted
