"""`guard-last-rows`: the last row of a loop that may run no step is read behind a check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import ifelse
from pytensor.scan.utils import until
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.step_check import checked_steps, is_step_check, with_step_check
from scanopt_cli.pipeline.grammar import PRESETS
from support.graph_building import (
    assert_same_values,
    graph_of,
    only_scan,
    optimized,
    outputs_of,
    scan,
)

N = pt.lscalar("n")
V, W = pt.dvectors("v", "w")
PASS = "guard-last-rows"


def states(n_steps: Any = N) -> Any:
    return scan(lambda h, w: h * w + 1, outputs_info=[V], non_sequences=[W], n_steps=n_steps)


def two_taps() -> Any:
    taps = {"initial": pt.stack([V, V * 2]), "taps": [-2, -1]}
    return scan(lambda a, b, w: b * w + a, outputs_info=[taps], non_sequences=[W], n_steps=N)


def collected() -> Any:
    step: Any = lambda h, w: (h + 1, h * w)  # noqa: E731
    return scan(step, outputs_info=[V, None], non_sequences=[W], n_steps=N)[1]


def stopped() -> Any:
    def step(h: Any, w: Any) -> Any:
        return h + w, until(h[0] > 3)

    return scan(step, outputs_info=[V], non_sequences=[W], n_steps=N)


LOOPS = [states, two_taps, collected, stopped]


def checks(graph: Graph) -> int:
    return sum(is_step_check(node) for node in graph.fgraph.apply_nodes)


def agree(graph: Graph, work: Graph) -> None:
    for count in (0, 1, 2, 7):
        assert_same_values(graph, work, n=count, v=[1.0, 2.0], w=[0.5, 1.5])


def guarded(*outputs: Any) -> Graph:
    """Run the pass twice: the second time it finds nothing to do."""
    graph = graph_of(*outputs)
    work, _ = optimized(graph, PASS)
    agree(graph, work)
    _, remarks = optimized(work, PASS)
    assert not any(remark.startswith("passed") for remark in remarks)
    return work


@pytest.mark.parametrize("loop", LOOPS)
def test_cases_1_and_2_the_last_row(loop: Callable[[], Any]) -> None:
    work = guarded(loop()[-1])
    assert checks(work) == 1
    reads = [node for node in work.fgraph.apply_nodes if isinstance(node.op, Subtensor)]
    buffer = only_scan(work.fgraph).outputs()[-1].outer_output
    assert any(node.inputs[0] is buffer and node.outputs[0].ndim == 1 for node in reads)


@pytest.mark.parametrize("read", [lambda xs: xs[N - 1], lambda xs: xs[::-1][0]])
def test_case_1_the_last_row_by_another_index(read: Any) -> None:
    assert checks(guarded(read(states()))) == 1


def test_case_1_an_entry_of_the_last_row() -> None:
    assert checks(guarded(states()[-1, 1])) == 1


@pytest.mark.parametrize(
    ("read", "count"),
    [
        (lambda xs: xs[1:, 0][-1], 1),
        (lambda xs: xs[1:, :1][-1, 0], 1),
        (lambda xs: xs[1:, 1][::-1][0], 1),
        (lambda xs: xs[1:, 0][-1:], 0),
    ],
)
def test_cases_1_and_3_of_a_column_of_the_steps(read: Any, count: int) -> None:
    """One slice takes the steps and the column, as PyTensor writes it when it compiles."""
    assert checks(guarded(read(states().owner.inputs[0]))) == count


def test_case_3_a_slice_is_one_row_or_none() -> None:
    work = guarded(states()[-1:])
    assert not checks(work)
    assert outputs_of(work, n=0, v=[1.0, 2.0], w=[1.0, 1.0])[0].shape == (0, 2)


def test_case_4_the_gradient_of_the_last_row() -> None:
    gradient = pt.grad(states()[-1].sum(), W)
    work = guarded(gradient)
    written = [
        node.inputs[1].owner
        for node in work.fgraph.apply_nodes
        if isinstance(node.op, IncSubtensor) and is_step_check(node.inputs[1].owner)
    ]
    assert written


def test_twin_there_is_a_step() -> None:
    for steps in (3, N + 1 - N):
        xs = states(steps)
        work, remarks = optimized(graph_of(xs[-1], pt.grad(xs[-1].sum(), W)), PASS)
        assert not checks(work), remarks
        if steps == 3:
            assert not remarks


@pytest.mark.parametrize(
    "read",
    [lambda xs: xs[0], lambda xs: xs[-2], lambda xs: xs[-3:], lambda xs: xs.sum(axis=0)],
    ids=["[0]", "[-2]", "[-3:]", "all"],
)
def test_twin_other_rows(read: Any) -> None:
    assert not checks(guarded(read(states())))


def test_twin_the_initial_row_is_there_without_a_step() -> None:
    buffer = states().owner.inputs[0]
    assert not checks(guarded(buffer[-1]))


def test_twin_a_loop_that_may_stop_has_no_row_of_that_number() -> None:
    assert not checks(guarded(stopped()[N - 1]))


def test_twin_the_buffer_is_trimmed() -> None:
    trimmed, _ = optimized(graph_of(collected()[-1]), "save-mem")
    work, remarks = optimized(trimmed, PASS)
    assert not checks(work)
    assert any("without a check" in remark for remark in remarks)


def test_without_checks_the_row_is_read_from_the_buffer() -> None:
    """For JAX, which raises no errors."""
    work, _ = optimized(graph_of(states()[-1]), f"{PASS}{{check=false}}")
    assert not checks(work)
    assert np.array_equal(outputs_of(work, n=0, v=[1.0, 2.0], w=[1.0, 1.0])[0], [1.0, 2.0])


def test_the_steps_of_a_check() -> None:
    check = with_step_check(V, N)
    assert checked_steps(check.owner) is N
    assert checked_steps((V + 1).owner) is None


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "none"])
@pytest.mark.parametrize("loop", LOOPS)
def test_every_preset_has_the_error(loop: Callable[[], Any], preset: str) -> None:
    row = loop()[-1]
    graph = graph_of(row, pt.grad(row.sum(), W))
    work, _ = optimized(graph, preset)
    agree(graph, work)


def test_twin_a_branch_decides_whether_the_row_is_read() -> None:
    xs = states()
    either = ifelse(N > 0, xs[-1], W * 0) + W
    assert not checks(guarded(either))
    assert checks(guarded(either, xs[-1])) == 1


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "none"])
def test_in_a_body(preset: str) -> None:
    """The inner loop runs no step where a row of the matrix has no entry."""
    m = pt.dmatrix("m")

    def outer(row: Any, h: Any) -> Any:
        inner = scan(lambda e, s: s * 0.5 + e, sequences=[row], outputs_info=[h])
        return inner[-1]

    graph = graph_of(scan(outer, sequences=[m], outputs_info=[pt.zeros(())])[-1])
    work, _ = optimized(graph, preset)
    for shape in ((0, 3), (2, 3), (2, 0), (0, 0)):
        assert_same_values(graph, work, m=np.ones(shape))
