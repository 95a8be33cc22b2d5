"""What is known of a Scan is known of the TracedLoop that it becomes, and of what reads it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pytensor.tensor as pt
import pytest
from hypothesis import assume, given
from pytensor.scan.utils import until
from pytensor.tensor.shape import Shape, SpecifyShape

import scanopt_cli as so
from scanopt_cli.analysis.accesses.accesses import accesses_of_outputs
from scanopt_cli.analysis.call_costs import operations
from scanopt_cli.analysis.dependence import (
    dependent_nodes,
    invariant_outputs,
    invariant_states,
    state_inputs,
    unchanged_states,
)
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.row_values import RowAnalysis
from scanopt_cli.analysis.step_costs import step_cost
from scanopt_cli.analysis.step_rows import step_rows
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import SlotKind, SlotView
from scanopt_cli.loop.operator_base import LoopOperator
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import graph_of, scan
from support.sample_building import samples
from support.zoo.model import Model, outputs_of
from support.zoo.models import MODELS

_BEFORE = "remove-unused,clean-slices,mit-mot-to-sit-sot"
N = pt.lscalar("n")
X = pt.dmatrix("x")


def _both(graph: Graph) -> tuple[Graph, Graph]:
    """Return a graph of Scans without mit_mots, and the same of TracedLoops."""
    scans = so.optimize(graph, _BEFORE).graph
    return scans, so.optimize(scans, "scan-to-loop").graph


def _lengths(graph: Graph) -> list[list[str]]:
    lengths = Lengths()
    return [list(map(str, lengths.shape(variable))) for variable in graph.fgraph.outputs]


def _views(graph: Graph) -> list[SlotView]:
    return [view_of(node) for node in graph.fgraph.toposort() if is_loop(node)]


def _accesses(graph: Graph) -> Counter[Any]:
    """Return how often rows are read in which way: as text, by how many last and first steps.

    Shapes are left out: some are read to make room in a Scan's buffers, which a TracedLoop has not.
    """
    clients = graph.fgraph.clients
    return Counter(
        (access.text.replace("TracedLoop", "Scan"), access.tail, access.head)
        for view in _views(graph)
        for accesses in accesses_of_outputs(view, lambda variable: clients[variable]).values()
        for access in accesses
        if not isinstance(access.node.op, Shape)
    )


def _row_values(graph: Graph) -> Counter[Any]:
    """Return what is known of the rows of arrays that steps read, by how many arrays.

    How many rows there are may be told by the number of steps, or by another trace.
    """
    found: Counter[Any] = Counter()
    for view in _views(graph):
        lengths = Lengths(view.n_steps)
        for row in step_rows(view).values():
            rows = RowAnalysis(lengths).of(row.slot.outer_input)
            length = str(lengths.length_of(row.slot.outer_input))
            known = [
                (str(run.length), str(run.value)) for run in rows.runs if run.value is not None
            ]
            found[None if "?" in length else length, *known] += 1
    return found


def _step_costs(graph: Graph) -> Counter[Any]:
    """Return what the steps of the loops compute, once equal nodes of a body are merged."""
    merged = so.optimize(graph, "merge-equal").graph
    return Counter((view.name, str(step_cost(view))) for view in _views(merged))


def _call_costs(graph: Graph) -> set[str]:
    """Return the arithmetic of all steps together; a length that is not known is called ``?``.

    Left out is what is not multiplied by a length: some of it counts the rows of a Scan's buffers.
    """
    found = str(operations(so.optimize(graph, "merge-equal").graph.fgraph))
    found = re.sub(r"\(?(Scan|TracedLoop|DeepCopyOp|\?)[^*+]*", "?", found)
    return {term for term in re.sub(r"-\d+$", "", found).split("+") if not term.isdigit()}


def _dependence(graph: Graph) -> Counter[Any]:
    """Return how many states and outputs no step changes, and what is computed of states.

    A TracedLoop says besides that a step keeps the lengths of a state.
    """
    found: Counter[Any] = Counter()
    for view in _views(graph):
        nodes = dependent_nodes(state_inputs(view), view.inner_outputs())
        of_states = {str(node.op) for node in nodes if not isinstance(node.op, SpecifyShape)}
        invariant = [invariant_states(view), unchanged_states(view), invariant_outputs(view)]
        found[view.name, *map(len, invariant), frozenset(of_states)] += 1
    return found


def _is_one_loop(view: SlotView) -> bool:
    """Whether the rows of a loop are those of one loop: a step of a batch computes all at once."""
    return not view.batch_ndim


def _has_one_body(view: SlotView) -> bool:
    """Whether the body is the same in both forms.

    A loop inside has no buffers in the other form, and one that may stop negates its condition.
    """
    is_simple = not view.is_while and not step_cost(view).inner_loops
    return is_simple and not view.batch_ndim


KNOWN: dict[str, tuple[Callable[[Graph], Any], Callable[[SlotView], bool]]] = {
    "lengths": (_lengths, lambda _: True),
    "accesses": (_accesses, lambda _: True),
    "row values": (_row_values, _is_one_loop),
    "dependence": (_dependence, _has_one_body),
    "step costs": (_step_costs, _has_one_body),
    "call costs": (_call_costs, _has_one_body),
}
"""What is told of a graph, and of which Scans of it the same is told as of TracedLoops."""


@lru_cache(maxsize=2)
def _both_of_sample(name: str) -> tuple[Graph, Graph]:
    return _both(samples()[name])


@lru_cache(maxsize=2)
def _both_of_model(model: Model, order: int) -> tuple[Graph, Graph]:
    return _both(from_io(*outputs_of(model, order)))


def _assert_known_alike(scans: Graph, loops: Graph, known: str) -> None:
    told, is_comparable = KNOWN[known]
    if all(map(is_comparable, _views(scans))):
        assert told(loops) == told(scans)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("name", sorted(samples()))
def test_samples(name: str, known: str) -> None:
    _assert_known_alike(*_both_of_sample(name), known)


def _models() -> Iterator[Any]:
    for model in MODELS:
        for order in range(min(model.order, 1) + 1):
            marks = [pytest.mark.deep] if order else []
            yield pytest.param(model, order, marks=marks, id=f"{model}-{order}")


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize(("model", "order"), list(_models()))
def test_the_zoo(model: Any, order: int, known: str) -> None:
    _assert_known_alike(*_both_of_model(model, order), known)


@given(scan_graphs(while_loops=False, blockwise=False))
def test_lengths_of_generated_graphs(generated: GeneratedScan) -> None:
    """What is told of a Scan by names of inputs is told of the TracedLoop by the same."""
    scans, loops = map(_lengths, _both(from_io(generated.inputs, generated.outputs)))
    for known, told in zip(scans, loops, strict=True):
        for of_scan, of_loop in zip(known, told, strict=True):
            assert "?" in of_scan or of_loop == of_scan


@given(scan_graphs(nesting=False))
def test_accesses_of_generated_graphs(generated: GeneratedScan) -> None:
    """What is the same for a whole batch is traced once by a TracedLoop, then repeated or joined.

    Rows that the program itself joins to those of a loop are told from them of a TracedLoop only.
    """
    assume(all(read.style != "last_joined" for read in generated.program.reads))
    scans, loops = map(_accesses, _both(from_io(generated.inputs, generated.outputs)))
    repeating = {"an operand of Alloc", "an operand of Blockwise", "an operand of Join"}
    is_repeated = not repeating.isdisjoint(text for text, _, _ in loops - scans)
    assert loops == scans or (generated.program.batched and is_repeated)


def _loop_outputs(graph: Graph) -> dict[str, list[str]]:
    """Return the lengths of each output of the TracedLoop in a graph, by the output's name."""
    (node,) = (node for node in graph.fgraph.toposort() if isinstance(node.op, LoopOperator))
    lengths = Lengths()
    return {
        node.op.output_name(place): list(map(str, lengths.shape(output)))
        for place, output in enumerate(node.outputs)
    }


def test_outputs_of_a_loop() -> None:
    h0 = pt.dvector("h0")
    states, logs = scan(
        lambda row, h: [pt.tanh(h * 2), h.sum() + row.sum()],
        sequences=[X],
        outputs_info=[h0, None],
    )
    graph = graph_of(states, logs)
    assert _loop_outputs(_both(graph)[1]) == {
        "last[0]": ["h0.shape[0]"],
        "trace[0]": ["x.shape[0]+1", "h0.shape[0]"],
        "traced[0]": ["x.shape[0]"],
        "steps": [],
    }


def test_a_last_value_of_another_shape_is_not_known() -> None:
    """A step may change the shape of what has no trace; the rows of a trace are all alike."""
    h0, w = pt.dvector("h0"), pt.dmatrix("w")
    states = scan(lambda h, w: w @ h, outputs_info=[h0], non_sequences=[w], n_steps=N)
    found = _loop_outputs(_both(graph_of(states))[1])
    assert found["last[0]"] == ["?.shape[0]"]
    assert found["trace[0]"] == ["n+1", "h0.shape[0]"]


def test_a_loop_that_may_stop_has_as_many_rows_as_steps_were_run() -> None:
    """The numbers of rows of two traces are equal, and no multiple of the most there may be."""
    states, logs = scan(
        lambda h: ([h * 2, pt.log(h)], until(h > 9)),
        outputs_info=[pt.dscalar("h"), None],
        n_steps=N,
    )
    graph = graph_of(states, logs, states.shape[0])
    (node,) = (
        node for node in _both(graph)[1].fgraph.toposort() if isinstance(node.op, LoopOperator)
    )
    lengths, view = Lengths(), view_of(node)
    (state,), (traced,) = view.of_kind(SlotKind.STATE), view.of_kind(SlotKind.TRACED)
    (n_done,) = view.counts
    assert lengths.length_of(state.output) == lengths.value_of(n_done) + 1
    assert lengths.length_of(traced.output) == lengths.value_of(n_done)
    assert lengths.value_of(n_done) != lengths.value_of(view.n_steps)
    assert not lengths.provably_le(lengths.value_of(view.n_steps), lengths.value_of(n_done))


def test_how_many_steps_were_run_is_known_of_a_loop_that_cannot_stop() -> None:
    states = scan(lambda h: h * 2, outputs_info=[pt.dscalar("h")], n_steps=N)
    (node,) = (
        node
        for node in _both(graph_of(states))[1].fgraph.toposort()
        if isinstance(node.op, LoopOperator)
    )
    (n_done,) = view_of(node).counts
    assert str(Lengths().value_of(n_done)) == "n"


def test_initial_rows_that_are_joined_again_are_as_many_as_the_taps_need() -> None:
    """``h0[:1]`` is one row, if a state starts as ``h0[1]``; that of another array may be none."""
    h0, other = pt.dvector("h0"), pt.dvector("other")
    taps = {"initial": h0, "taps": [-2, -1]}
    states = scan(lambda b, a: a + b, outputs_info=[taps], n_steps=N)
    graph = graph_of(states.owner.inputs[0])
    assert [_lengths(one) for one in _both(graph)] == [[["n+2"]], [["n+2"]]]
    (joined,) = _both(graph)[1].outputs
    start, trace = joined.owner.inputs
    assert _lengths(graph_of(pt.join(0, start, trace))) == [["n+2"]]
    assert "?" in _lengths(graph_of(pt.join(0, other[:1], trace)))[0][0]
