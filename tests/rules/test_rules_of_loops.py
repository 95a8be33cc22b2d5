"""What rules say of loops is so: in JAX, in Numba, and in what PyTensor compiles."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytensor
import pytest
from seeded_loops import MORE_VALUES, SEEDED_LOOPS, Graph, N, squared, traced

import scanopt_cli as so
from scanopt_cli.analysis.named_loops import named_loops
from scanopt_cli.analysis.step_costs import step_cost
from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.rules.graph_checking import check
from scanopt_cli.rules.rule_registry import rules

VALUES: dict[str, Any] = {"v": np.array(0.7), "n": np.array(4), **MORE_VALUES}


def run(graph: Graph, mode: str) -> list[Any]:
    inputs, outputs = graph
    with so.enabled():
        function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    return function(*(VALUES[v.name] for v in inputs))


@pytest.mark.jax
@pytest.mark.parametrize(
    "name", [name for name, (code, *_) in SEEDED_LOOPS.items() if code == "J001"]
)
def test_jax_runs_the_twin_alone(name: str) -> None:
    pytest.importorskip("jax")
    _, seeded, twin = SEEDED_LOOPS[name]
    with pytest.raises(NotImplementedError, match="JAX cannot trace"):
        run(seeded(), "JAX")
    for one, other in zip(run(twin(), "JAX"), run(twin(), "FAST_COMPILE"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_what_few_care_for_is_looked_for_if_it_is_selected() -> None:
    graph = traced(steps=N)
    assert "J001" not in {finding.code for finding in check(graph).findings}
    assert {finding.code for finding in check(graph, select=["J"]).findings} == {"J001"}
    assert not check(graph, select=["J"], ignore=["J001"]).findings


def is_on_numbers(graph: Graph, passes: str = "loop") -> bool:
    (loop,) = named_loops(so.optimize(graph, passes).graph.fgraph)
    return not step_cost(loop.view).arrays


def test_shapes_that_are_named_let_a_loop_run_on_numbers() -> None:
    _, seeded, _ = SEEDED_LOOPS["unknown shapes"]
    inputs, outputs = seeded()
    (finding,) = check((inputs, outputs), select=["P009"]).findings
    assert "`a` and `b` a static shape, as pt.tensor('a', shape=(3, 3))" in finding.text
    assert not is_on_numbers((inputs, outputs))
    known = [v.type.clone(shape=(3, 3))(name=v.name) for v in inputs]
    given = dict(zip(inputs, known, strict=True))
    assert is_on_numbers(
        (known, pytensor.graph.clone_replace(outputs, given, rebuild_strict=False))
    )


def test_a_larger_size_makes_numbers() -> None:
    (finding,) = check(squared(), select=["P010"]).findings
    assert "unroll-small{size=36}" in finding.text
    assert not is_on_numbers(squared())
    larger = PRESETS["loop"].replace("unroll-small", "unroll-small{size=36}")
    assert is_on_numbers(squared(), larger)


def test_numba_calls_python_as_it_is_said() -> None:
    _, seeded, twin = SEEDED_LOOPS["a call of Python"]
    inputs, outputs = seeded()
    with pytest.warns(UserWarning, match="object mode"):
        pytensor.function(inputs, outputs, mode="NUMBA")
    inputs, outputs = twin()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pytensor.function(inputs, outputs, mode="NUMBA")


def test_default_rules_are_all_but_those_for_some() -> None:
    assert {code for code, rule in rules().items() if not rule.is_default} == {"J001"}
