"""FunctionGraphs that are made without a search are those that PyTensor makes."""

from __future__ import annotations

import pickle

import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.utils import MissingInputError

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.making_graphs import graph_over, unfrozen
from support.growing import exponent


def parts(count: int) -> tuple[list[Variable], list[Variable]]:
    inputs = [pt.dscalar(f"x{i}") for i in range(count)]
    return inputs, [pt.tanh(a * b) for a, b in zip(inputs, inputs[1:] + inputs[:1], strict=True)]


def test_the_graph_is_a_plain_one_with_plain_lists() -> None:
    inputs, outputs = parts(3)
    made, theirs = graph_over(inputs, outputs), FunctionGraph(inputs, outputs, clone=False)
    assert type(made) is FunctionGraph
    assert type(made.inputs) is list
    assert made.inputs == theirs.inputs
    assert made.outputs == theirs.outputs
    assert made.apply_nodes == theirs.apply_nodes
    assert made.variables == theirs.variables
    assert vars(made).keys() == vars(theirs).keys()
    assert {v: len(readers) for v, readers in made.clients.items()} == {
        v: len(readers) for v, readers in theirs.clients.items()
    }
    assert digest(pickle.loads(pickle.dumps(made))) == digest(theirs)


def test_an_input_that_is_not_listed_is_missed() -> None:
    inputs, outputs = parts(3)
    with pytest.raises(MissingInputError):
        graph_over(inputs[1:], outputs)


def test_an_input_may_be_added_and_replaced_afterwards() -> None:
    made = graph_over(*parts(3))
    new = pt.dscalar("new")
    made.add_input(new)
    made.replace(made.outputs[0], new)
    made.check_integrity()
    assert made.outputs[0] is new


def test_a_body_is_unfrozen() -> None:
    body = FunctionGraph(*parts(3)).freeze()
    assert digest(unfrozen(body)) == digest(body.unfreeze())


def test_inputs_are_compared_in_proportion_to_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = []
    for count in (25, 200):
        inputs, outputs = parts(count)
        compared: list[object] = []

        def equals(one: object, other: object, compared: list[object] = compared) -> bool:
            compared.append(other)
            return one is other

        with monkeypatch.context() as patch:
            patch.setattr(type(inputs[0]), "__eq__", equals)
            patch.setattr(type(inputs[0]), "__hash__", lambda one: id(one) >> 4)
            graph_over(inputs, outputs)
        counts.append(len(compared) + count)
    assert exponent(*counts, 8) < 1.2
