"""Generated loops over constants, and over arrays with equal rows: values, compiled too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.type import DenseTensorType
from test_pass_properties import passed_through

from scanopt_cli.ir.graph import from_io
from support.compiled_ways import EVERY_WAY, assert_right, right_sums
from support.evaluating import assert_same_outcomes, evaluator, has_unknown_shape
from support.generated.arguments import Value
from support.generated.strategies import GeneratedScan, scan_graphs
from support.tiers import examples

_LOOPS = "scan-to-loop,"


def uniform(generated: GeneratedScan) -> tuple[list[Any], list[Any], list[tuple[Any, ...]]]:
    """Return the graph with each array input as one row, repeated, and its arguments.

    The rows are as many as those of the array, which stays an input for that.
    """
    rows: dict[Variable, Any] = {}
    for variable in generated.inputs:
        if isinstance(variable.type, DenseTensorType) and variable.type.ndim:
            kind = variable.type
            row = kind.clone(shape=kind.shape[1:])()
            made = pt.repeat(row[None], variable.shape[0], axis=0)
            rows[variable] = row, kind.filter_variable(made, allow_convert=True)
    outputs = clone_replace(generated.outputs, {v: made for v, (_, made) in rows.items()})
    inputs = [*generated.inputs, *(row for row, _ in rows.values())]
    arguments = []
    for values in generated.arguments:
        given_values = dict(zip(generated.inputs, values, strict=True))
        firsts = [
            np.asarray(given_values[v])[0]
            if len(np.asarray(given_values[v]))
            else np.zeros(np.shape(given_values[v])[1:], v.type.dtype)
            for v in rows
        ]
        arguments.append((*values, *map(np.asarray, firsts)))
    return inputs, outputs, arguments


def constant(
    generated: GeneratedScan, values: Sequence[Value]
) -> tuple[list[Variable], list[Variable], tuple[Value, ...]]:
    """Return the graph with constants for its array inputs, and its other inputs and arguments."""
    pairs = list(zip(generated.inputs, values, strict=True))
    arrays = {
        v: v.type.filter_variable(pt.constant(np.asarray(data), dtype=v.type.dtype))
        for v, data in pairs
        if isinstance(v.type, DenseTensorType)
    }
    outputs = clone_replace(generated.outputs, arrays)
    others = [(v, data) for v, data in pairs if v not in arrays]
    return [v for v, _ in others], outputs, tuple(data for _, data in others)


@given(generated=scan_graphs())
def test_uniform_rows_keep_values(generated: GeneratedScan) -> None:
    inputs, outputs, arguments = uniform(generated)
    graph = from_io(inputs, outputs)
    expected = evaluator(graph.inputs, graph.outputs)
    for first in ("", _LOOPS):
        work = graph.copy()
        passed_through(f"{first}inline-constants,remove-unused", work.fgraph)
        actual = evaluator(work.inputs, work.outputs)
        for values in arguments:
            olds, news = expected(values), actual(values)
            # Errors of what nobody reads may go, and a loop knows the shape of rows of no steps.
            refined = [
                new
                if isinstance(old, Exception) or (first and has_unknown_shape(old, new))
                else old
                for old, new in zip(olds, news, strict=True)
            ]
            assert_same_outcomes(refined, news)


@given(generated=scan_graphs())
def test_constant_loops_keep_values(generated: GeneratedScan) -> None:
    for values in generated.arguments[:2]:
        inputs, outputs, others = constant(generated, values)
        graph = from_io(inputs, outputs)
        olds = evaluator(graph.inputs, graph.outputs)(others)
        for first in ("", _LOOPS):
            work = graph.copy()
            passed_through(f"{first}fold-loops", work.fgraph)
            news = evaluator(work.inputs, work.outputs)(others)
            refined = [
                new
                if first and (isinstance(old, Exception) or has_unknown_shape(old, new))
                else old
                for old, new in zip(olds, news, strict=True)
            ]
            assert_same_outcomes(refined, news)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("way", ["optimize -p default", "enabled('grad')", "enabled('loop')"])
@settings(max_examples=examples(4, 30))
@given(generated=scan_graphs())
def test_they_compile_to_their_values(generated: GeneratedScan, way: str) -> None:
    with right_sums():
        assert_right(*uniform(generated), EVERY_WAY[way])
        inputs, outputs, others = constant(generated, generated.arguments[0])
        assert_right(inputs, outputs, [others], EVERY_WAY[way])
