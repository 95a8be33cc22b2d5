"""Guards of loops of no steps hold where PyTensor works in place on what they return or read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode, get_mode
from pytensor.conditional.op import IfElse, ifelse
from pytensor.configdefaults import config

import scanopt_cli
from scanopt_cli.ir.graph import from_io
from support.graph_building import scan

W = pt.dmatrix("W")
h0 = pt.dvector("h0")
n = pt.lscalar("n")
INPUTS = [W, h0, n]
SINGULAR = np.zeros((3, 3))
REGULAR = np.eye(3) + np.arange(9.0).reshape(3, 3) / 20

VM = Mode("vm", "fast_run").excluding("fusion", "random_unsafe")
MODES = {
    "vm": VM,
    **({"cvm": Mode("cvm", "fast_run").excluding("random_unsafe")} if config.cxx else {}),
    "numba": get_mode("NUMBA").excluding("random_unsafe"),
}


def states(step: Callable[[Any, Any], Any], matrix: Any = W) -> Any:
    return scan(step, outputs_info=[h0], non_sequences=[matrix], n_steps=n)


def nested(invariant: Callable[[Any], Any]) -> Any:
    def outer(h: Any, matrix: Any) -> Any:
        return scan(
            lambda g, m: pt.tanh(g * invariant(m)),
            outputs_info=[h],
            non_sequences=[matrix],
            n_steps=2,
        )[-1]

    return states(outer)


def total_of_inverse(matrix: Any) -> Any:
    return pt.linalg.inv(matrix).sum() * 0.1


def either(matrix: Any) -> Any:
    inverse = pt.linalg.inv(matrix)
    return ifelse(pt.gt(matrix.shape[0], 2), inverse, pt.exp(matrix @ matrix)).sum() * 0.1


def with_reader() -> list[Any]:
    """The branch reads what a node outside of it overwrites."""
    total = W + W.T
    return [states(lambda g, m: pt.tanh(g + pt.linalg.inv(m)[0]), total), pt.exp(total)]


def one(invariant: Callable[[Any], Any]) -> Any:
    return states(lambda g, m: pt.tanh(g * invariant(m)))


GRAPHS: dict[str, Callable[[], list[Any]]] = {
    "a product of the guarded": lambda: [one(total_of_inverse)],
    "a branch in the step": lambda: [one(either)],
    "a loop in a loop": lambda: [nested(total_of_inverse)],
    "a row of the inverse": lambda: [states(lambda g, m: pt.tanh(g + 0.1 * pt.linalg.inv(m)[0]))],
    "a reader outside of the branch": with_reader,
}


def check(outputs: list[Any], compiled: Callable[..., Any]) -> None:
    """Compare at 0 steps with what no rewrite changes, also where a step would raise."""
    plain = pytensor.function(INPUTS, outputs, mode=Mode("vm", None))
    for matrix, steps in ((SINGULAR, 0), (REGULAR, 0), (REGULAR, 1), (REGULAR, 3)):
        arguments = (matrix, np.linspace(0.5, 1.0, 3), steps)
        for found, wanted in zip(compiled(*arguments), plain(*arguments), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def with_gradient(outputs: list[Any]) -> list[Any]:
    return [*outputs, *pt.grad((outputs[0] ** 2).sum(), [W, h0])]


@pytest.mark.parametrize(
    "mode", ["vm", *(pytest.param(m, marks=pytest.mark.deep) for m in MODES if m != "vm")]
)
@pytest.mark.parametrize("preset", ["grad", "loop"])
@pytest.mark.parametrize("name", GRAPHS)
def test_guards_hold_in_blocks(name: str, preset: str, mode: str) -> None:
    for outputs in (GRAPHS[name](), with_gradient(GRAPHS[name]())):
        with scanopt_cli.enabled(preset):
            function = pytensor.function(INPUTS, outputs, mode=MODES[mode])
        check(outputs, function)


# PyTensor moves the inverse out of a Scan that is left, without a guard (tests/upstream).
@pytest.mark.parametrize("passes", ["loop", "push-out"])
@pytest.mark.parametrize("name", GRAPHS)
def test_guards_hold_in_what_is_saved(name: str, passes: str) -> None:
    outputs = GRAPHS[name]()
    for wanted in (outputs, with_gradient(outputs)) if passes == "loop" else (outputs,):
        graph = scanopt_cli.optimize(from_io(INPUTS, wanted), passes).graph
        check(wanted, pytensor.function(list(graph.inputs), list(graph.outputs), mode=VM))


def test_a_saved_branch_that_cannot_raise_is_not_copied() -> None:
    """The twin."""
    outputs = [2 * ifelse(pt.gt(n, 0), pt.exp(W + 1).sum(), h0.sum())]
    result = scanopt_cli.optimize(from_io(INPUTS, outputs), "compile-safe")
    assert any(isinstance(node.op, IfElse) for node in result.graph.fgraph.apply_nodes)
    assert not any("branch" in str(remark) for run in result.passes for remark in run.remarks)


def test_a_branch_of_a_program_s_own_holds_in_blocks() -> None:
    inverse = pt.linalg.inv(W).sum()[None]
    outputs = [pt.sort(0.1 * ifelse(pt.gt(n, 0), inverse, pt.zeros(1))), h0]
    with scanopt_cli.enabled():
        check(outputs, pytensor.function(INPUTS, outputs, mode=VM))
    result = scanopt_cli.optimize(from_io(INPUTS, outputs), "compile-safe")
    assert any("a branch reads or returns" in str(r) for run in result.passes for r in run.remarks)
    graph = result.graph
    check(outputs, pytensor.function(list(graph.inputs), list(graph.outputs), mode=VM))
