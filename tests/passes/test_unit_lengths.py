"""`compile-safe`, case 8: lengths of 1 that PyTensor would find while it compiles, and refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph

import scanopt_cli as so
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.saving import save
from support.compiled_ways import VM
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import graph_of, optimized, scan
from support.tiers import deep
from support.unit_lengths import FORMS, VALUES, h0, s, v, wide, x

DECLARED = "declares lengths of 1 that PyTensor would find, and refuse"


def compiled(graph: Graph, arguments: list[Any]) -> list[Any]:
    """What a graph computes, compiled, where no rewrite of PyTensor's may fail."""
    with config.change_flags(on_opt_error="raise"):
        function = pytensor.function(graph.inputs, graph.outputs, mode=VM, on_unused_input="ignore")
    return list(function(*arguments))


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("form", FORMS)
def test_pytensor_compiles_without_a_failing_rewrite(form: str, tmp_path: Any) -> None:
    graph = FORMS[form]()
    arguments = [np.asarray(VALUES[str(v.name)]) for v in graph.inputs]
    wanted = evaluate(graph.inputs, graph.outputs, arguments)
    work, remarks = optimized(graph, "compile-safe")
    assert any(DECLARED in remark for remark in remarks)
    assert_same_outcomes(wanted, evaluate(work.inputs, work.outputs, arguments))
    again, _ = optimized(work, "compile-safe")
    assert digest(again.fgraph) == digest(work.fgraph)
    save(work, tmp_path / "graph.pkl")
    for each in (work, so.load(tmp_path / "graph.pkl")):
        np.testing.assert_allclose(compiled(each, arguments), wanted)


def _reading(values: Any) -> Any:
    """A loop whose steps read ``values`` as a non-sequence."""
    return scan(
        lambda t, h, values: h * t * pt.exp(values).dot(h),
        sequences=[s],
        outputs_info=[h0],
        non_sequences=[values],
    )


@pytest.mark.parametrize(
    "steps",
    [
        scan(lambda t, h: h * t, sequences=[s], outputs_info=[h0]),
        _reading(v),
        _reading(v[:1]),
        _reading(pt.alloc(x, 1)),
        _reading(wide(pt.alloc(x, 2))),
    ],
    ids=["no 1", "unknown", "at most one", "declared", "two"],
)
def test_what_stays(steps: Any) -> None:
    _, remarks = optimized(graph_of(steps), "compile-safe")
    assert not any(DECLARED in remark for remark in remarks)


def test_the_outputs_of_a_graph_inside_keep_their_types() -> None:
    rows = scan(lambda t: t, sequences=[s])
    inner = wide(pt.alloc(rows.sum() + x, 1))
    graph = OpFromGraph([s, x], [inner])(s, x)
    work, _ = optimized(Graph(fgraph=FunctionGraph([s, x], [graph])), "compile-safe")
    assert work.outputs[0].type == inner.type
    arguments = [np.asarray(VALUES["s"]), np.asarray(0.5)]
    np.testing.assert_allclose(compiled(work, arguments), [[4.0]])


def _row(r: Any, w: Any) -> Any:
    steps = scan(
        lambda r, h, w: h @ w + r, sequences=[r[1:]], outputs_info=[r[0]], non_sequences=[w]
    )
    return steps[-1]


@pytest.mark.deep
@pytest.mark.parametrize("preset", ["grad", *deep("default", "loop")])
def test_a_second_gradient_of_a_loop_in_a_loop(preset: str) -> None:
    rows, w = pt.dtensor3("rows"), pt.dmatrix("w")
    last = scan(_row, sequences=[rows], non_sequences=[w])
    first = pt.grad((last**2).sum(), [rows, w])
    second = pt.grad(first[0].sum() + first[1].sum(), [rows, w])
    drawn = np.random.default_rng(3)
    arguments = [drawn.normal(size=(4, 5, 3)), drawn.normal(size=(3, 3)) * 0.4]
    wanted = evaluate([rows, w], second, arguments)
    work = so.optimize(([rows, w], second), preset).graph
    for value, right in zip(compiled(work, arguments), wanted, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-9)
