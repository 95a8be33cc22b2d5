"""FunctionGraphs that are made and rewritten fast are those that PyTensor makes and rewrites."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph import fg
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.graph.utils import MissingInputError

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.fast_graphs import graph_over, rewrite_fast, rewritten_fast, unfrozen
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


def test_a_graph_is_fast_for_as_long_as_it_is_rewritten() -> None:
    made = graph_over(*parts(3))
    with rewritten_fast(made):
        lists = type(made.clients[made.inputs[0]])
        new = pt.exp(made.inputs[0])
        made.replace(made.outputs[0], new)
        assert type(made.clients[new]) is lists is not list
        assert type(made) is not FunctionGraph
        made.check_integrity()
    assert type(made) is FunctionGraph
    assert type(made.clients) is dict
    assert {type(readers) for readers in made.clients.values()} == {list}
    made.check_integrity()


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)), max_size=12
    )
)
def test_replacements_leave_what_those_of_any_graph_leave(
    steps: list[tuple[int, int, int]],
) -> None:
    """Each step replaces one variable by nodes over two others, none of which reads it."""
    plain = FunctionGraph(*parts(4), clone=True)
    fast = FunctionGraph(plain.inputs, plain.outputs, clone=True)
    rewrite_fast(fast)
    for old, *read in steps:
        for graph in (plain, fast):
            order = [v for node in graph.toposort() for v in node.outputs]
            place = old % len(order)
            a, b = ([*graph.inputs, *order[:place]][each % (4 + place)] for each in read)
            graph.replace(order[place], pt.exp(pt.tanh(a) * 2.0) + pt.tanh(a) * b, reason="a test")
    fast.check_integrity()
    assert digest(fast) == digest(plain)
    assert len(fast.variables) == len(plain.variables)
    assert [str(node) for node in fast.toposort()] == [str(node) for node in plain.toposort()]


def test_what_cannot_be_imported_is_an_error_as_in_any_graph() -> None:
    fast = graph_over(*parts(3))
    before = set(fast.variables)
    rewrite_fast(fast)
    with pytest.raises(MissingInputError):
        fast.replace(fast.outputs[0], pt.exp(pt.dscalar("unknown")))
    assert before <= fast.variables


@pytest.mark.parametrize("is_fast", [True, False])
def test_replacements_copy_variables_in_proportion_to_what_is_new(
    monkeypatch: pytest.MonkeyPatch, is_fast: bool
) -> None:
    """Those of PyTensor copy all variables: once they do not, this need not be done here."""
    copied: list[int] = []

    def counted(outputs: Iterable[Variable], blockers: Any) -> Any:
        copied.append(len(blockers))
        return toposort(outputs, blockers)

    monkeypatch.setattr(fg, "toposort", counted)
    totals = []
    for count in (25, 200):
        copied.clear()
        made = graph_over(*parts(count))
        with rewritten_fast(made) if is_fast else nullcontext():
            for output in list(made.outputs):
                made.replace(output, pt.exp(output.owner.inputs[0]))
        totals.append(sum(copied))
    found = exponent(*totals, 8)
    assert found < 1.2 if is_fast else found > 1.8
