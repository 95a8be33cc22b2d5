"""Loops with a batch compute what the loop computes for each entry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.scalar.basic import float64
from pytensor.tensor.basic import scalar_from_tensor, tensor_from_scalar
from pytensor.tensor.blockwise import Blockwise

from scanopt_cli.ir.graph import from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Body, TracedLoop
from support.evaluating import PLAIN
from support.programs import PROGRAMS

BATCH = 3


def stacked(values: list[Any]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [
        np.stack([v + (rng.normal(size=v.shape) * 0.1).astype(v.dtype) for _ in range(BATCH)])
        for v in values
    ]


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", [name for name, one in PROGRAMS.items() if one.condition is None])
@pytest.mark.parametrize("mode", [PLAIN, "FAST_RUN"], ids=["plain", "fast_run"])
def test_programs_with_a_batch(name: str, mode: Any) -> None:
    program = PROGRAMS[name]
    core = program.inputs()
    outputs = program.looped(core, program.n_steps)
    wider = [pt.tensor(shape=(None, *v.type.shape), dtype=v.dtype) for v in core]
    made = vectorize_graph(outputs, dict(zip(core, wider, strict=True)))
    ops = [node.op for node in walk(from_io(wider, made).fgraph)]
    assert not any(isinstance(op, Blockwise) and isinstance(op.core_op, TracedLoop) for op in ops)
    one = pytensor.function(core, outputs, mode=mode, on_unused_input="ignore")
    all_at_once = pytensor.function(wider, made, mode=mode, on_unused_input="ignore")
    batches = stacked(program.arguments)
    found = all_at_once(*batches)
    for entry in range(BATCH):
        wanted = one(*(v[entry] for v in batches))
        for new, old, output, whole in zip(found, wanted, outputs, made, strict=True):
            is_batched = whole.type.ndim > output.type.ndim
            np.testing.assert_allclose(new[entry] if is_batched else new, old, rtol=1e-10)


@pytest.mark.parametrize("length", [1, None])
def test_an_update_that_does_not_depend_on_the_batch(length: int | None) -> None:
    """In a batch of one, too, of which PyTensor knows that it is one."""
    state, other = pt.dscalars("state", "other")
    index, a, b = pt.lscalar(), pt.dscalar(), pt.dscalar()
    zero = pt.constant(0.0, dtype="float64")
    body = Body(index=index, states=[a, b], next_states=[a * 2, zero])
    outputs = TracedLoop.over(3, body, [state, other], {})
    batch = pt.tensor("batch", shape=(length,), dtype="float64")
    made = vectorize_graph(outputs, {state: batch, other: batch + 1})
    last, reset, trace, resets, _ = pytensor.function([batch], made, mode=PLAIN)([0.5])
    np.testing.assert_array_equal(last, [4.0])
    np.testing.assert_array_equal(reset, [0.0])
    np.testing.assert_array_equal(trace, [[0.5, 1.0, 2.0, 4.0]])
    np.testing.assert_array_equal(resets, [[1.5, 0.0, 0.0, 0.0]])


def test_a_number_that_does_not_differ_within_the_batch() -> None:
    index, a, c = pt.lscalar(), pt.dscalar(), float64()
    start, w = pt.dscalars("start", "w")
    body = Body(index=index, states=[a], next_states=[a * tensor_from_scalar(c)], constants=[c])
    last = TracedLoop.over(3, body, [start], {c: scalar_from_tensor(w)})[0]
    batch = pt.dvector("batch")
    made = vectorize_graph([last], {start: batch})
    found = pytensor.function([batch, w], made, mode=PLAIN)([1.0, 2.0], 3.0)
    np.testing.assert_allclose(found[0], [27.0, 54.0])
