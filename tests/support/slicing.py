"""Graphs that `clean-slices` is run on, compared with what they were, and told as code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.expression_text import describe
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph
from scanopt_cli.passes.clean_slices.clean_slices import CleanSlices
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.reports.remark_text import text_of
from support.evaluating import assert_same_outcomes, evaluate, evaluator
from support.graph_building import graph_of

N = pt.lscalar("n")
STEPS = pytest.mark.parametrize("steps", [N, 5], ids=["n", "5"])


def five(name: str = "x") -> Any:
    return pt.vector(name, shape=(5,), dtype="float64")


def unknown(name: str = "x") -> Any:
    return pt.dvector(name)


def cleaned(*outputs: Variable) -> tuple[Graph, list[str]]:
    work = graph_of(*outputs).copy()
    (run,) = run_pipeline(work.fgraph, [CleanSlices()])
    return work, [f"{remark.kind} {text_of(remark)}" for remark in run.remarks]


def text(graph: Graph) -> str:
    return "; ".join(describe(output, depth=9) for output in graph.outputs)


def values(variable: Variable, seed: int, rows: int) -> Any:
    """An argument for ``variable``; unknown lengths are ``rows``, and so is ``n``."""
    if str(variable.type.dtype).startswith("int"):
        return np.asarray(rows, dtype=variable.type.dtype)
    random = np.random.default_rng(seed)
    shape = [rows if length is None else length for length in variable.type.shape]
    return random.normal(size=shape).astype(variable.type.dtype)


def check(*outputs: Variable) -> str:
    """Clean, compare values and errors for several lengths, and tell what is left."""
    before = graph_of(*outputs)
    after, _ = cleaned(*outputs)
    old, new = evaluator(before.inputs, before.outputs), evaluator(after.inputs, after.outputs)
    for rows in (0, 1, 2, 5, 7):
        given = [values(variable, place, rows) for place, variable in enumerate(before.inputs)]
        kept = {str(variable): value for variable, value in zip(before.inputs, given, strict=True)}
        assert_same_outcomes(old(given), new([kept[str(variable)] for variable in after.inputs]))
    return text(after)


def unchanged(*outputs: Variable) -> None:
    after, remarks = cleaned(*outputs)
    assert digest(after.fgraph) == digest(graph_of(*outputs).fgraph), text(after)
    assert remarks == []


def outcome(graph: Graph) -> Any:
    return evaluate(graph.inputs, graph.outputs, [values(v, 0, 2) for v in graph.inputs])[0]


def count(graph: Graph, op: type) -> int:
    return sum(isinstance(node.op, op) for node in graph.fgraph.apply_nodes)
