"""Bugs of PyTensor 3.3.7, each a strict xfail: what it takes for equal in loops and is not.

`upstream_modes` says what this directory is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import SymbolicOp
from pytensor.compile.mode import get_mode
from pytensor.configdefaults import config
from pytensor.scan.rewriting.io import scan_remove_unused
from pytensor.scan.rewriting.merge import ScanMerge
from pytensor.scan.utils import until

from support.evaluating import PLAIN
from support.graph_building import scan
from support.tiers import deep
from support.upstream_modes import FAST, alone, bug, value

x = pt.dscalar("x")
s = pt.dvector("s")


@bug(
    "scan_merge_inouts takes states that start equal for equal at every step, and merges "
    "what is computed of them",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [FAST, *deep(get_mode("NUMBA"))], ids=["vm", "numba"])
def test_states_that_only_start_equal(mode: Any) -> None:
    start = {"initial": s, "taps": [-2, -1]}
    _, _, sums, products = scan(
        lambda a2, a1, b2, b1: (a1 + a2, b1 * b2, 3 * a1, 3 * b1),
        outputs_info=[start, dict(start), None, None],
        n_steps=4,
    )
    found = value(pt.stack([sums, products]), {s: [1.0, 2.0]}, mode)
    np.testing.assert_array_equal(found, [[6.0, 9.0, 15.0, 24.0], [6.0, 6.0, 12.0, 24.0]])


@bug(
    "ScanMerge merges while loops whose conditions are equal in the first step only",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [alone(ScanMerge()), FAST], ids=["alone", "fast_run"])
def test_while_loops_whose_conditions_only_start_equal(mode: Any) -> None:
    twice, thrice = (
        scan(lambda y, by=by: (y * by, until(y > 5)), outputs_info=[x], n_steps=9) for by in (2, 3)
    )
    lengths = pt.stack([twice.shape[0], thrice.shape[0]])
    np.testing.assert_array_equal(value(lengths, {x: 1.0}, mode), [4, 3])


@bug(
    "scan_inline_invariant_constants takes 0.0 and -0.0 for one value, since "
    "TensorConstant.unique_value does",
    ours="integration/compilation/sealing.py, passes/inline_constants.py",
    raises=AssertionError,
)
def test_zeros_of_both_signs_are_two_values() -> None:
    zeros = pt.constant(np.array([0.0, -0.0]))
    steps = scan(lambda zero, f: f / zero, sequences=[zeros], non_sequences=[x])
    np.testing.assert_array_equal(value(steps, {x: 1.0}, FAST), [np.inf, -np.inf])


@bug(
    "FrozenFunctionGraph keeps 0.0 and -0.0 as one constant",
    ours="ir/interning.py",
    raises=AssertionError,
)
def test_bodies_that_differ_by_the_sign_of_a_zero_are_two() -> None:
    plus, minus = (
        scan(lambda q, zero=zero: q / pt.constant(np.array(zero)), sequences=[s])
        for zero in (0.0, -0.0)
    )
    np.testing.assert_array_equal(value(plus - minus, {s: [1.0]}, PLAIN), [np.inf])


@bug(
    "scan_inline_invariant_constants drops a constant sequence that is too short, and so the error",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
)
def test_a_constant_sequence_that_is_too_short_raises() -> None:
    twos = pt.constant(np.array([2.0, 2.0]))
    steps = scan(lambda q, y: y + q, sequences=[twos[:4]], outputs_info=[x], n_steps=4)
    with pytest.raises(ValueError, match="required number of steps"):
        value(steps, {x: 1.0}, FAST)


@bug(
    "scan_remove_unused drops what is not read, and so the error that it raises",
    ours="left alone, only an error is lost, as by its own remove-unused",
)
@pytest.mark.parametrize("mode", [alone(scan_remove_unused), FAST], ids=["alone", "fast_run"])
def test_a_state_that_nobody_reads_may_raise(mode: Any) -> None:
    steps, _ = scan(
        lambda a, b, q: (a + 1, b + q[5]), outputs_info=[x, x], non_sequences=[s], n_steps=4
    )
    with pytest.raises(IndexError):
        value(steps, {x: 1.0, s: [1.0]}, mode)


class Doubled(SymbolicOp):
    """An Op with a property that its graph does not show."""

    __props__ = ("label",)
    label: str

    def build_inner_graph(self, *inputs: Any) -> list[Any]:
        return [2 * inputs[0]]


@bug(
    "OpFromGraph.__eq__ compares graphs and overrides, not the properties of a subclass",
    ours="equivalence/sameness.py",
    raises=AssertionError,
)
def test_symbolic_ops_of_different_properties_are_different() -> None:
    assert Doubled([x.type], label="one") != Doubled([x.type], label="other")


@bug(
    "Scan.perform returns (0, 0) for a map of vectors that takes no step, whatever the "
    "length of the vectors",
    ours="left alone, the array is empty either way",
    raises=AssertionError,
)
def test_a_map_of_no_steps_has_the_shape_of_its_rows() -> None:
    rows = pt.tensor("rows", shape=(None, 3))
    steps = scan(lambda row: pt.cumsum(row), sequences=[rows])
    assert value(steps, {rows: np.zeros((0, 3))}, PLAIN).shape == (0, 3)


@bug(
    "constant_folding evaluates a loop of no steps, whose value does not have the static "
    "shape that its type says",
    ours="left alone, the error is PyTensor's and loud",
    raises=TypeError,
)
def test_a_constant_loop_of_no_steps_can_be_folded() -> None:
    rows = pt.constant(np.zeros((0, 3)))
    steps = scan(lambda row: pt.cumsum(row), sequences=[rows], n_steps=0)
    with config.change_flags(on_opt_error="raise"):
        pytensor.function([], steps, mode=FAST)
