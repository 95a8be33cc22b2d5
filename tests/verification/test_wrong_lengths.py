"""Graphs whose static lengths are wrong, and that read memory that nothing wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import ifelse
from pytensor.compile.maker import function
from pytensor.compile.ops import deep_copy_op
from pytensor.tensor.type import TensorType

from scanopt_cli.verification.checking_linker import StaticShapeError, filled_buffers
from scanopt_cli.verification.modes import plain_mode
from scanopt_cli.verification.result import Verdict
from scanopt_cli.verification.verifying import verify
from support.graph_building import graph_of, scan

FAR = 2_000_000_000


def declared(variable: Any, *shape: int | None) -> Any:
    """Change the static shape of a variable, whatever computes it."""
    variable.type = TensorType(variable.type.dtype, shape=shape)
    return variable


def last_of(x: Any) -> Any:
    """The last entry of what is declared to be far longer: compiled, it reads out of bounds."""
    y = pt.sort(x)
    last = y[y.shape[0] - 1]
    declared(y, FAR)
    return last


def read_by_length() -> Any:
    return last_of(pt.vector("x"))


def read_in_a_loop() -> Any:
    return scan(last_of, sequences=[pt.matrix("rows")])


@pytest.mark.parametrize(
    "build", [read_by_length, pytest.param(read_in_a_loop, marks=pytest.mark.deep)]
)
def test_no_mode_evaluates_what_is_not_as_long_as_declared(build: Any) -> None:
    graph = graph_of(build())
    found = verify(graph, graph, modes="numba", runs=2)
    assert found.verdict is not Verdict.DIFFERS
    assert found.reason is not None
    assert "StaticShapeError: SortOp computed an array of shape" in found.reason
    assert f"declared to be of static shape ({FAR},)" in found.reason


def test_plain_evaluation_checks_outputs_that_are_not_read() -> None:
    x = pt.vector("x")
    run = function([x], [declared(pt.sort(x), 3), x + 1], mode=plain_mode(with_c=False))
    assert run(np.ones(3))[0].shape == (3,)
    with pytest.raises(StaticShapeError, match=r"of shape \(4,\), declared .* \(3,\)"):
        run(np.ones(4))


def test_lazy_branches_are_checked_when_they_are_taken() -> None:
    x, flag = pt.vector("x"), pt.iscalar("flag")
    branches = ifelse(flag, declared(pt.sort(x), 3)[:2], x)
    run = function([flag, x], branches, mode=plain_mode(with_c=False))
    assert run(0, np.ones(4)).shape == (4,)
    with pytest.raises(StaticShapeError):
        run(1, np.ones(4))


def test_copies_of_a_loop_of_no_steps_are_not_checked() -> None:
    """PyTensor loses the lengths of the rows, which `compile-safe` may copy."""
    rows = pt.matrix("rows", shape=(None, 3))
    ys = scan(lambda row: row * 2, sequences=[rows])
    run = function([rows], deep_copy_op(ys).shape[0], mode=plain_mode(with_c=False))
    assert run(np.ones((0, 3))) == 0
    wrong = function([rows], declared(deep_copy_op(rows), None, 4), mode=plain_mode(with_c=False))
    with pytest.raises(StaticShapeError):
        wrong(np.ones((0, 3)))


@pytest.fixture
def _finite_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the C library fill memory: what an earlier array left there may be NaN, as twice it is.

    It does not fill what NumPy keeps for its small arrays.
    """
    monkeypatch.setenv("MALLOC_PERTURB_", "85")


def of_empty(*scales: float) -> Any:
    x = pt.vector("x")
    buffer = pt.set_subtensor(pt.empty((4_000,))[:2], x[:2])
    return graph_of(buffer.sum() * scales[0], x[:2].sum() * scales[1])


@pytest.mark.usefixtures("_finite_memory")
def test_values_of_memory_that_nothing_wrote_are_not_compared() -> None:
    found = verify(of_empty(1, 1), of_empty(2, 1), modes="plain", runs=2)
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert found.reason == "the first graph reads memory that it never wrote"


@pytest.mark.usefixtures("_finite_memory")
def test_other_outputs_of_such_graphs_are_compared() -> None:
    found = verify(of_empty(1, 1), of_empty(2, 3), modes="plain", runs=2)
    assert found.verdict is Verdict.DIFFERS
    assert 1 in {difference.output for difference in found.differences}


@pytest.mark.usefixtures("_finite_memory")
def test_a_second_graph_that_reads_unwritten_memory_differs() -> None:
    x = pt.vector("x")
    honest = graph_of(x[:2].sum() + 1e6, x[:2].sum())
    found = verify(honest, of_empty(1, 1), modes="plain", runs=2)
    assert found.verdict is Verdict.DIFFERS


def test_buffers_are_filled_with_other_numbers_each_time() -> None:
    run = function([], pt.empty((3,)), mode=plain_mode(with_c=False))
    values = []
    for _ in range(2):
        with filled_buffers():
            values.append(run().copy())
    assert (values[0] == values[0][0]).all()
    assert (values[0] != values[1]).all()
