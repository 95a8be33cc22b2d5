"""Copies of an array that are told apart by a number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import deep_copy_op
from pytensor.graph.rewriting.utils import rewrite_graph

from scanopt_cli.ir.copies import copied, number_of_copy, numbered_copy

_MANY = 60
ARRAYS = {"vector": pt.dvector("x"), "matrix": pt.dmatrix("x"), "row": pt.drow("x")}


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("is_rewritten", [False, True])
def test_each_number_is_another_copy(kind: str, is_rewritten: bool) -> None:
    """So it is after PyTensor has merged what stands between two copies."""
    x: Any = ARRAYS[kind]
    copies = [numbered_copy(x, number) for number in range(_MANY)]
    assert all(copy.type == x.type for copy in copies)
    if is_rewritten:
        copies = rewrite_graph(copies, include=("canonicalize", "specialize"), clone=False)
    assert len(set(copies)) == _MANY
    assert [number_of_copy(copy) for copy in copies] == [(n, x) for n in range(_MANY)]
    assert copied(copies[-1]) is x
    assert copied(x) is None


def test_few_copies_make_a_large_number() -> None:
    large: Any = numbered_copy(pt.dvector("x"), 1_000)
    copies = 0
    while large.owner is not None:
        copies += large.owner.op == deep_copy_op
        large = large.owner.inputs[0]
    assert copies == 6


@pytest.mark.parametrize("mode", ["FAST_RUN", "NUMBA", "FAST_COMPILE"])
def test_values_and_memory_are_those_of_copies(mode: str) -> None:
    x = pt.dmatrix("x")
    numbers = (1, 2, 3, 5, 17)
    function = pytensor.function([x], [numbered_copy(x, n) for n in numbers], mode=mode)
    value = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    results = function(value)
    for result in results:
        np.testing.assert_array_equal(result, value)
        assert not np.shares_memory(result, value)
    assert len({id(result) for result in results}) == len(numbers)


@pytest.mark.parametrize(
    "other",
    [
        pt.squeeze(deep_copy_op(pt.tensor("y", shape=(1, None), dtype="float64")), axis=0),
        pt.squeeze(pt.expand_dims(pt.dvector("y"), 0), axis=0),
        deep_copy_op(pt.dmatrix("y")).T[0],
        pt.exp(deep_copy_op(pt.dvector("y"))),
    ],
)
def test_what_is_no_copy(other: Any) -> None:
    assert number_of_copy(other) == (0, other)


def test_a_transposed_copy_is_read_up_to_the_transposition() -> None:
    y = pt.dmatrix("y")
    copy = deep_copy_op(deep_copy_op(y).T)
    assert number_of_copy(copy) == (1, copy.owner.inputs[0])
