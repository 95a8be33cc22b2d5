"""Graphs that are right as they stand, and wrong or right once a mode has compiled them."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import scanopt_cli as so
from scanopt_cli.errors import VerificationError
from scanopt_cli.reports.verify_report import summary
from scanopt_cli.verification.modes import compiling_modes
from scanopt_cli.verification.result import DifferenceKind, Verdict
from support.graph_building import graph_of, optimized, scan

pytestmark = pytest.mark.usefixtures("evaluated_here")


def sums(add: Any) -> Any:
    """The last row of a sum of three terms in each step, which PyTensor compiles wrongly."""
    a, b = pt.dtensor3("a"), pt.dtensor3("b")
    total = scan(lambda p, q, acc: add(acc, pt.dot(p, q), p), sequences=[a, b],
                 outputs_info=[pt.zeros((2, 2))], name="sums")  # fmt: skip
    return graph_of(total.owner.inputs[0][-1])


RIGHT = sums(lambda acc, product, p: (acc - -product) + p)
WRONG = sums(pt.add)


def test_a_difference_names_the_mode_in_which_it_appears() -> None:
    assert so.verify(RIGHT, WRONG, modes="plain").ok
    found = so.verify(RIGHT, WRONG, modes="vm", runs=2)
    assert found.verdict is Verdict.DIFFERS
    assert {d.mode for d in found.differences} == {"vm"}
    assert {d.kind for d in found.differences} == {DifferenceKind.VALUES}
    assert (found.runs, found.modes) == (2, ("vm",))


def test_the_default_mode_is_compiled_unless_told_otherwise() -> None:
    found = so.verify(RIGHT, WRONG, runs=1)
    assert found.modes == ("default",)
    assert [d.mode for d in found.differences] == ["default"]


def test_what_pytensor_does_to_the_original_as_well_is_a_note() -> None:
    """No difference between the two, and a reader is told."""
    found = so.verify(WRONG, WRONG, modes="vm", runs=2)
    assert found.verdict is Verdict.IDENTICAL
    assert found.notes == ("mode vm itself changes values, of the original as well",)


@pytest.mark.deep
def test_several_modes_are_compiled_one_after_the_other() -> None:
    found = so.verify(RIGHT, WRONG, modes=["vm", "FAST_COMPILE", "numba"], runs=1)
    assert found.modes == ("vm", "FAST_COMPILE", "numba")
    assert {d.mode for d in found.differences} == {"vm", "numba"}


@pytest.mark.parametrize("preset", ["default", "grad"])
def test_optimized_graphs_are_right_compiled(preset: str) -> None:
    result = so.optimize(WRONG, preset, verify=True, modes="vm")
    assert result.verification is not None
    assert result.verification.ok
    assert result.verification.modes == ("vm",)


def test_optimize_finds_what_a_pass_made_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its last pass, `optimize` makes a sum that PyTensor compiles wrongly."""
    result = so.optimize(RIGHT, "grad", verify=True, modes="vm")
    assert result.verification is not None
    assert result.verification.ok
    without, _ = optimized(RIGHT, "grad")
    assert not so.verify(RIGHT, without, modes="vm").ok


def test_random_states_are_compared_compiled() -> None:
    rng = pt.random.type.random_generator_type("rng")
    following, draw = pt.random.normal(rng=rng, size=(2,), return_next_rng=True)
    graph = ([rng], [following, draw])
    assert so.verify(graph, graph, modes="vm").verdict is Verdict.IDENTICAL


def test_modes_that_cannot_be_used() -> None:
    x = pt.dvector("x")
    found = so.verify(([x], [x]), ([x], [x]), modes="cvm")
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert "mode cvm cannot be used: RuntimeError: mode cvm needs a C++ compiler" in str(
        found.reason
    )
    with pytest.raises(VerificationError, match="there is no mode 'quick'"):
        so.verify(([x], [x]), ([x], [x]), modes="vm,quick")


def test_names_of_modes() -> None:
    assert compiling_modes("plain") == ()
    assert compiling_modes("vm, plain,vm,numba") == ("vm", "numba")
    assert compiling_modes(["FAST_COMPILE"]) == ("FAST_COMPILE",)


def test_what_compiled_code_raises_of_both_graphs_is_no_difference() -> None:
    x = pt.dvector("x")
    n = pt.lscalar("n")
    ys = scan(lambda v: v[5], outputs_info=[None], non_sequences=[x], n_steps=n)
    graph = ([x, n], [ys])
    found = so.verify(graph, graph, modes="vm")
    # PyTensor computes it once, before a loop that may run no step: the original raises as well.
    assert found.verdict is not Verdict.DIFFERS


@pytest.mark.parametrize("recorded", ["c|py", "JAX", Mode("c", "fast_run")], ids=["c", "jax", "C"])
def test_a_mode_recorded_in_a_scan_does_not_matter(recorded: Any) -> None:
    x = pt.dvector("x")
    ys = pytensor.scan(
        lambda s, y: y + s,
        sequences=[x],
        outputs_info=[pt.zeros(())],
        mode=recorded,
        return_updates=False,
    )
    assert so.verify(([x], [ys[-1]]), ([x], [x.sum()]), modes="vm").ok


def test_a_mode_that_compiles_neither_graph_shows_nothing() -> None:
    x = pt.dvector("x")
    found = so.verify(([x], [x + 1]), ([x], [1 + x]), modes="jax", runs=1)
    if importlib.util.find_spec("jax") is None:
        assert found.verdict is Verdict.COULD_NOT_RUN
        assert found.reason is not None
        assert "mode jax" in found.reason
    else:
        assert found.ok


def test_a_note_on_values_is_no_claim_that_they_are_the_same() -> None:
    assert "compiled by" not in summary(so.verify(WRONG, WRONG, modes="vm", runs=1))
    assert "the same compiled by vm" in summary(so.verify(RIGHT, RIGHT, modes="vm", runs=1))
