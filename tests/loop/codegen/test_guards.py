"""What a guard returns is for Numba of the type of what it guards, and so are zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.conditional.op import LazyIfElse, ifelse
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key
from pytensor.tensor.linalg import cholesky, inv

import scanopt_cli as so
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop.codegen.guards import GuardBranches
from support.compiled_ways import NUMBA, VM
from support.evaluating import PLAIN
from support.graph_building import scan
from support.tiers import deep

A = pt.dmatrix("A")
h = pt.dvector("h")
n = pt.lscalar("n")
INPUTS = [A, h, n]
SINGULAR = np.zeros((3, 3))
REGULAR = np.eye(3) * 4 + np.arange(9.0).reshape(3, 3) / 20
SYMMETRIC = REGULAR @ REGULAR.T


def trace(invariant: Callable[[Any], Any]) -> Any:
    """All rows, whose number no check looks at."""
    return scan(
        lambda g, m: pt.tanh(invariant(m) @ g), outputs_info=[h], non_sequences=[A], n_steps=n
    )


def vectors_of_the_inverse() -> Any:
    step: Any = lambda g, m: pt.tanh(inv(m).sum(0) * g)  # noqa: E731
    return scan(step, outputs_info=[h], non_sequences=[A], n_steps=n)


def of_known_lengths() -> Any:
    """Of which the zeros are a constant."""
    matrix = pt.specify_shape(A, (3, 3))
    step: Any = lambda g, m: pt.tanh(inv(m) @ g)  # noqa: E731
    return scan(step, outputs_info=[h], non_sequences=[matrix], n_steps=n)


def both(matrix: Any) -> Any:
    return inv(matrix) + cholesky(matrix)[0]


def nested(matrix: Any) -> Any:
    return scan(
        lambda g, m: pt.tanh(inv(m) @ g), outputs_info=[matrix], non_sequences=[matrix], n_steps=n
    )[-1]


GUARDED: dict[str, Callable[[], Any]] = {
    "an inverse": lambda: trace(inv),
    "an inverse that is turned": lambda: trace(lambda m: inv(m).T),
    "several": lambda: trace(both),
    "a vector": vectors_of_the_inverse,
    "of known lengths": of_known_lengths,
    "in a loop in a loop": lambda: trace(nested),
    "by a gradient": lambda: pt.grad((trace(inv) ** 2).sum(), A),
    "in a branch of a program's own": lambda: ifelse(n > 7, trace(inv), pt.zeros((1, 3))),
}


def made(output: Any, mode: Mode = NUMBA, preset: str | None = "default") -> Any:
    if preset is None:
        return pytensor.function(INPUTS, output, mode=mode, on_unused_input="ignore")
    with so.enabled(preset, cache=False):
        return pytensor.function(INPUTS, output, mode=mode, on_unused_input="ignore")


def kinds(function: Any) -> set[type]:
    nodes = walk(function.maker.fgraph)
    return {type(node.op) for node in nodes if isinstance(node.op, LazyIfElse)}


@pytest.mark.parametrize("name", GUARDED)
def test_guards_of_arrays(name: str) -> None:
    assert GuardBranches in kinds(made(GUARDED[name]()))


@pytest.mark.parametrize("preset", ["grad", "loop"])
def test_presets(preset: str) -> None:
    assert kinds(made(trace(inv), preset=preset)) == {GuardBranches}


OTHERS: dict[str, Callable[[], Any]] = {
    "a branch of ones": lambda: made(ifelse(n > 0, inv(A), pt.ones((3, 3)))),
    "a branch of an array": lambda: made(ifelse(n > 0, inv(A), A * 2)),
    "outside of a block": lambda: made(ifelse(n > 0, inv(A), pt.zeros((3, 3))), preset=None),
    "a block of no passes": lambda: made(
        ifelse(n > 0, inv(A), pt.zeros((3, 3))), NUMBA.excluding("scanopt")
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    assert kinds(OTHERS[name]()) == {LazyIfElse}


def test_the_virtual_machine_has_none() -> None:
    assert kinds(made(trace(inv), VM)) == set()


@pytest.mark.deep
@pytest.mark.parametrize("name", GUARDED)
def test_values_and_errors(name: str) -> None:
    output = GUARDED[name]()
    function, plain = made(output), made(output, PLAIN, None)
    for matrix, steps in ((SINGULAR, 0), (SYMMETRIC, 0), (SYMMETRIC, 1), (SYMMETRIC, 4)):
        arguments = (matrix, np.linspace(0.5, 1.0, 3), steps)
        found, wanted = function(*arguments), plain(*arguments)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    if "branch" not in name:
        with pytest.raises(np.linalg.LinAlgError):
            function(SINGULAR, np.ones(3), 2)


def returned(output: Any) -> tuple[Any, Any]:
    """The types in Numba of what the guard in a graph returns, and of what it guards."""
    nodes = walk(made(output).maker.fgraph)
    (node,) = (node for node in nodes if isinstance(node.op, GuardBranches))
    function, key = numba_funcify_and_cache_key(node.op, node=node)
    assert key is not None
    guarded, _ = numba_funcify_and_cache_key(node.op.true_branch, node=node)
    assert len(node.inputs) == 2
    numba.njit(lambda condition, matrix: function(condition, matrix))(np.array(False), SYMMETRIC)
    numba.njit(lambda matrix: guarded(matrix))(SYMMETRIC)
    first, second = (one.nopython_signatures[0].return_type for one in (function, guarded))
    return first, second


@pytest.mark.parametrize("invariant", [inv, *deep(both, cholesky)])
def test_layouts_in_numba(invariant: Callable[[Any], Any]) -> None:
    found, wanted = returned(trace(invariant))
    assert found == wanted
    if invariant is inv:
        assert found.layout == "F"
