"""Bugs of PyTensor 3.3.7, each a strict xfail: rewrites beside loops that change what loops return.

`upstream_modes` says what this directory is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.compile.ops import deep_copy_op
from pytensor.conditional.op import ifelse
from pytensor.configdefaults import config
from pytensor.tensor.random.rewriting.basic import sidestep_unused_rng_consumer
from pytensor.tensor.random.type import random_generator_type

from support.graph_building import scan
from support.upstream_modes import FAST, alone, bug, value

five = pt.tensor("five", shape=(5,))


@bug(
    "local_dimshuffle_subtensor reads the row 0 of a reversed slice of one row",
    ours="passes/simplify.py, loop/operators.py (output_types)",
    raises=AssertionError,
)
@pytest.mark.parametrize("rows", [slice(None, -2, -1), slice(None, -3, -2)])
def test_a_reversed_slice_of_one_row(rows: slice) -> None:
    values = np.arange(1.0, 6.0)
    assert value(five[rows].sum(), {five: values}, FAST) == values[rows].sum()


@bug(
    "local_mul_canonizer makes one product of a product in a narrower dtype, which wraps around",
    ours="nothing: simplify uses it, and so does every compilation",
    raises=AssertionError,
)
def test_a_product_of_a_product_of_bytes() -> None:
    c, r, w = pt.bvector("c"), pt.bvector("r"), pt.dscalar("w")
    hundred, three = np.array([100], "int8"), np.array([3], "int8")
    found = value(w * (c * r), {c: hundred, r: three, w: 0.5}, FAST)
    np.testing.assert_array_equal(found, 0.5 * (hundred * three))


@bug(
    "local_subtensor_SpecifyShape_lift fails where a length is not specified; values stay right",
    ours="nothing: PyTensor logs the error, and compiles the graph without this rewrite",
    raises=TypeError,
)
def test_a_row_of_an_array_of_which_one_length_is_specified() -> None:
    matrix = pt.dmatrix("matrix")
    with config.change_flags(on_opt_error="raise"):
        pytensor.function([matrix], pt.specify_shape(matrix, (2, None))[1], mode=FAST)


@bug(
    "sidestep_unused_rng_consumer returns the generator before a draw, if the draw is not read",
    ours="passes/simplify.py",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [alone(sidestep_unused_rng_consumer), FAST], ids=["alone", "all"])
def test_a_generator_is_advanced_by_a_draw_that_nobody_reads(mode: Any) -> None:
    generator = random_generator_type("generator")
    after, _ = pt.random.normal(rng=generator, return_next_rng=True)
    given, wanted = np.random.default_rng(1), np.random.default_rng(1)
    wanted.normal()
    assert value(after, {generator: given}, mode).normal() == wanted.normal()


@bug(
    "a fused reciprocal is computed in single precision by the virtual machine in Python:"
    " Reciprocal.impl divides a NumPy float32 by a Python float",
    ours="verification/modes.py",
    raises=AssertionError,
)
def test_a_fused_reciprocal_has_double_precision() -> None:
    x = pt.dvector("x")
    found = value(pt.reciprocal(x) + pt.exp(-x), {x: [3.0]}, FAST)
    np.testing.assert_allclose(found, [1 / 3 + np.exp(-3.0)], rtol=1e-12)


@bug(
    "Numba computes the reciprocal of an integer in single precision, which it casts to double",
    ours="left alone, no loop is concerned",
    raises=AssertionError,
)
def test_the_reciprocal_of_an_integer_has_double_precision() -> None:
    k = pt.lvector("k")
    found = value(1 / k, {k: [3]}, get_mode("NUMBA"))
    np.testing.assert_allclose(found, [1 / 3], rtol=1e-12)


@bug(
    "a copy has no gradient",
    ours="docs/how_to/optimize.md (optimize a graph after its last derivative)",
    raises=NotImplementedError,
)
def test_a_copy_can_be_differentiated() -> None:
    x = pt.dvector("x")
    assert value(pt.grad(deep_copy_op(x).sum(), x), {x: [3.0]}, FAST) == [1.0]


@bug(
    "local_add_canonizer makes 2 - (b + b) of (1 - b) + (1 - b), and the sum of two "
    "booleans is a boolean: derivatives of maxima come out wrong",
    ours="passes/simplify.py",
    raises=AssertionError,
)
def test_a_sum_of_booleans_is_counted() -> None:
    x = pt.dscalar("x")
    is_large = pt.gt(x, 1.0)
    assert value((1 - is_large) + (1 - is_large), {x: 1.5}, FAST) == 0


@bug(
    "a lazy VM first computes all readers of overwritten memory, also in branches not taken",
    ours="ir/lazy_branches.py, passes/of_scans/compile_safe/branches.py",
    raises=np.linalg.LinAlgError,
)
@pytest.mark.parametrize("read", [False, True], ids=["what it returns", "what it reads"])
def test_a_branch_that_is_not_taken_is_not_computed(read: bool) -> None:
    n, matrix = pt.lscalar("n"), pt.dmatrix("matrix")
    source = matrix + matrix.T if read else matrix
    entries = pt.linalg.inv(source).sum(axis=0)
    chosen = ifelse(pt.gt(n, 0), entries[None] if not read else entries[None] + 1, pt.zeros((1, 3)))
    given = {n: 0, matrix: np.zeros((3, 3))}
    if read:
        found = value(pt.exp(source) + pt.sort(chosen), given, FAST)
        np.testing.assert_array_equal(found, np.ones((3, 3)))
    else:
        found = value(pt.sort(0.1 * chosen), given, FAST)
        np.testing.assert_array_equal(found, np.zeros((1, 3)))


@bug(
    "what the branches of two conditionals read is computed whatever their condition is",
    ours="ir/lazy_branches.py merges conditionals of one condition",
    raises=np.linalg.LinAlgError,
)
def test_what_two_branches_read_is_not_computed() -> None:
    n, matrix = pt.lscalar("n"), pt.dmatrix("matrix")
    inverse = pt.linalg.inv(matrix)
    total = ifelse(pt.gt(n, 0), inverse.sum(), pt.zeros(()))
    entry = ifelse(pt.gt(n, 0), inverse[0, 0], pt.zeros(()))
    found = value(pt.exp(total + 1) + entry, {n: 0, matrix: np.zeros((3, 3))}, "NUMBA")
    assert found == np.exp(1)


@bug(
    "a Scan of no steps returns a trace of shape (0, 0), whatever its type says, and the gradient "
    "by a sequence, which has its rows in a buffer of zeros, raises",
    ours="passes/clean_slices/buffer_facts.py keeps the buffer; loop/operators.py has the shape",
    raises=ValueError,
)
def test_the_gradient_by_a_sequence_of_no_rows() -> None:
    n, row, start = pt.lscalar("n"), pt.dvector("row"), pt.dvector("start")
    rows = pt.alloc(row, n, 3)
    states = scan(lambda x, h: h * x, sequences=[rows], outputs_info=[start], n_steps=n)
    found = value(pt.grad(states.sum(), row), {row: np.ones(3), start: np.ones(3), n: 0}, FAST)
    np.testing.assert_array_equal(found, np.zeros(3))


# The bug is in PyTensor's virtual machine in C, which needs a C compiler; CI has one.
@pytest.mark.deep
@pytest.mark.skipif(shutil.which("g++") is None, reason="it shows in C only")
@bug(
    "a VM that is not lazy gives an output the memory of a number that died, and writes the next "
    "such number there when it is called again: an earlier result changes",
    ours="loop/operators.py (compile_fn), verification/modes.py",
    raises=AssertionError,
)
def test_a_result_stays_as_it_was_returned() -> None:
    code = """
import numpy as np, pytensor, pytensor.tensor as pt
x, h, v = pt.dvectors("x", "h", "v")
a = pt.dscalar("a")
outputs = [0.01 * pt.exp(h).sum() + 0.9 * a, pt.inc_subtensor(v[0], -2.0 * pt.exp(x).sum())]
for ordered in (outputs, outputs[::-1]):
    function = pytensor.function([x, h, a, v], ordered, mode=pytensor.compile.mode.VM)
    first = function(np.ones(3), np.ones(4), 1.0, np.zeros(3))
    kept = [np.array(result) for result in first]
    function(np.ones(3) * 2, np.ones(4) * 3, 5.0, np.zeros(3))
    for one, other in zip(first, kept):
        assert np.array_equal(one, other)
"""
    flags = {**os.environ, "PYTENSOR_FLAGS": os.environ["PYTENSOR_FLAGS"].replace("cxx=,", "")}
    done = subprocess.run([sys.executable, "-c", code], env=flags, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
