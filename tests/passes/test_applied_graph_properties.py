"""What must hold of passes on generated graphs of OpFromGraphs: values, derivatives, an end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytest
from hypothesis import given, note, settings

import scanopt_cli as so
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph, from_io
from support.compiled_ways import NUMBA, VM, compiled
from support.evaluating import assert_same_outcomes, evaluate
from support.generated.applied_graphs import AppliedGraphs, applied_graphs
from support.graph_building import optimized
from support.tiers import deep, examples

_PIPELINES = (
    "clean-ofg",
    "inline-ofg",
    "inline-ofg{size=0},clean-ofg",
    "inline-ofg{size=1000}",
)


def rewritten(generated: AppliedGraphs, pipeline: str) -> tuple[Graph, Graph]:
    graph = from_io(generated.inputs, generated.outputs)
    after, remarks = optimized(graph, pipeline)
    for remark in remarks:
        note(f"{pipeline}: {remark}")
    return graph, after


@settings(max_examples=examples(25, 300))
@given(generated=applied_graphs())
def test_values_stay_and_nothing_is_left_to_do(generated: AppliedGraphs) -> None:
    graph = from_io(generated.inputs, generated.outputs)
    wanted = evaluate(graph.inputs, graph.outputs, generated.arguments)
    for pipeline in _PIPELINES:
        _, after = rewritten(generated, pipeline)
        after.fgraph.check_integrity()
        assert [v.type for v in after.outputs] == [v.type for v in graph.outputs]
        got = evaluate(after.inputs, after.outputs, generated.arguments)
        assert_same_outcomes(wanted, got, rtol=1e-12)
        again, _ = optimized(after, pipeline)
        assert digest(again.fgraph) == digest(after.fgraph)


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize("mode", [VM, *deep(NUMBA)], ids=["vm", "numba"])
@settings(max_examples=examples(5, 30))
@given(generated=applied_graphs())
def test_compiled_values_stay(generated: AppliedGraphs, mode: Any) -> None:
    wanted = compiled(generated.inputs, generated.outputs, mode)(*generated.arguments)
    for pipeline in (*_PIPELINES, "default", "grad", "loop"):
        note(pipeline)
        after = so.optimize((generated.inputs, generated.outputs), pipeline).graph
        got = compiled(after.inputs, after.outputs, mode)(*generated.arguments)
        assert_same_outcomes(wanted, got)


def derivatives(cost: Any, inputs: Any, order: int) -> list[Any]:
    """The first derivatives of a cost, or those of a sum of these."""
    found = pytensor.grad(cost, inputs, disconnected_inputs="ignore")
    if order == 1:
        return list(found)
    total = sum(g.sum() * (i + 1) for i, g in enumerate(found))
    return list(pytensor.grad(total, inputs, disconnected_inputs="ignore"))


@pytest.mark.parametrize("order", [1, 2])
@settings(max_examples=examples(8, 60))
@given(generated=applied_graphs())
def test_derivatives_before_and_after(generated: AppliedGraphs, order: int) -> None:
    """A graph that is rewritten has the same derivatives, and they may be rewritten as well."""
    inputs = generated.inputs
    wanted = derivatives(generated.cost, inputs, order)
    for pipeline in _PIPELINES:
        note(pipeline)
        after = so.optimize((inputs, [generated.cost]), pipeline).graph
        got = derivatives(after.outputs[0], after.inputs, order)
        values = [
            evaluate(inputs, wanted, generated.arguments),
            evaluate(after.inputs, got, generated.arguments),
        ]
        cleaned, _ = optimized(from_io(inputs, wanted), pipeline)
        values.append(evaluate(cleaned.inputs, cleaned.outputs, generated.arguments))
        for found in values[1:]:
            for old, new in zip(values[0], found, strict=True):
                np.testing.assert_allclose(new, old, rtol=1e-9, atol=1e-12)
