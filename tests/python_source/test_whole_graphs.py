"""The script of a graph builds that graph: samples, the zoo, generated graphs, rewritten ones."""

from __future__ import annotations

from pathlib import Path

import pytensor
import pytest
from hypothesis import given, settings
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

import scanopt_cli as so
from support.generated.strategies import GeneratedScan, scan_graphs
from support.python_scripts import assert_rebuilt, runs_alone
from support.real_graphs import GRAPHS
from support.sample_building import samples
from support.tiers import deep, examples
from support.zoo.model import Model, outputs_of
from support.zoo.models import MODELS

_FEW = MODELS[::8]
_OTHERS = tuple(model for model in MODELS if model not in _FEW)
# What the samples are when a person reads them: a script is about as long as the one that built it.
_MOST_LINES = {"seed": 25, "nested": 45, "kalman_logp": 40, "random_walk": 35, "seed_grad": 60}


@pytest.mark.parametrize("name", samples())
def test_samples(name: str) -> None:
    text = assert_rebuilt(samples()[name])
    assert text.count("\n") <= _MOST_LINES.get(name, 200)
    assert "scanopt_cli" not in text


@pytest.mark.parametrize("name", ["rnn_grad", *deep("nested", "random_walk", "vectorised")])
def test_no_scanopt_is_needed(name: str, tmp_path: Path) -> None:
    graph = samples()[name]
    shown = runs_alone(so.to_python(graph), tmp_path)
    assert shown.split() == [str(len(graph.inputs)), str(len(graph.outputs))]


@pytest.mark.parametrize("model", [*_FEW, *deep(*_OTHERS)], ids=str)
def test_zoo_with_first_derivatives(model: Model) -> None:
    for order in range(min(model.order, 1) + 1):
        assert_rebuilt(outputs_of(model, order))


@pytest.mark.deep
@pytest.mark.parametrize("model", [m for m in MODELS if m.order >= 2][::3], ids=str)
def test_zoo_with_second_derivatives(model: Model) -> None:
    assert_rebuilt(outputs_of(model, 2))


@pytest.mark.parametrize("passes", ["loop", *deep("grad", "default", "scan-to-loop")])
@pytest.mark.parametrize("model", [*MODELS[3::16], *deep(*MODELS[::4])], ids=str)
def test_what_passes_leave(model: Model, passes: str) -> None:
    assert_rebuilt(so.optimize(outputs_of(model, min(model.order, 1)), passes=passes).graph)


@pytest.mark.parametrize("model", [*MODELS[4::16], *deep(*MODELS[1::4])], ids=str)
def test_what_pytensor_compiles(model: Model) -> None:
    """The graph of a compiled function has Ops that work in place."""
    inputs, outputs = outputs_of(model, 0)
    compiled = pytensor.function(inputs, outputs, mode="FAST_RUN", on_unused_input="ignore")
    fgraph = compiled.maker.fgraph
    # A function has graphs of its updates as well; a graph of its own has the inputs as they are.
    fresh: dict[Variable, Variable] = {v: v.type(name=v.name) for v in fgraph.inputs}
    assert_rebuilt((list(fresh.values()), clone_replace(fgraph.outputs, fresh)))


# It is made of a function of SciPy's, by a constructor that takes no graph.
_NOT_WRITTEN = {"optimization": "MinimizeOp"}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_kind_of_op_that_a_file_may_hold(name: str) -> None:
    graph = GRAPHS[name]()
    if name in _NOT_WRITTEN:
        with pytest.raises(
            so.ScanoptError, match=f"the Op {_NOT_WRITTEN[name]}.* cannot be written"
        ):
            so.to_python(graph)
    else:
        assert "scanopt_cli" not in assert_rebuilt(graph)


@settings(max_examples=examples(6, 60))
@given(scan_graphs(generators=True))
def test_generated_graphs(generated: GeneratedScan) -> None:
    assert_rebuilt((generated.inputs, generated.outputs))


@pytest.mark.parametrize("passes", ["default", *deep("grad", "loop")])
@settings(max_examples=examples(3, 30))
@given(generated=scan_graphs())
def test_generated_graphs_after_passes(generated: GeneratedScan, passes: str) -> None:
    assert_rebuilt(so.optimize((generated.inputs, generated.outputs), passes=passes).graph)
