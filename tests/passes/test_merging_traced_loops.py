"""`merge-scans` and `merge-duplicates` do to TracedLoops what they do to Scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, note, settings
from pytensor.graph.basic import Variable
from pytensor.scan.utils import until
from test_pass_properties import passed_through

from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop import TracedLoop
from scanopt_cli.loop.operator_base import LoopView
from support.compiled_ways import BACKENDS, compiled
from support.evaluating import assert_same_outcomes, evaluator, has_unknown_shape
from support.generated.strategies import GeneratedScan, scan_graphs, with_twin
from support.graph_building import arguments, graph_of, optimized, scan
from support.merging_scans import VALUES, M, N, S, T, X, check, grow
from support.tiers import examples

PASSES = "scan-to-loop,hoist-states,remove-zeros,merge-duplicates,merge-scans,merge-states"


def merged(*outputs: Variable, passes: str = "merge-scans") -> tuple[Graph, Graph, list[str]]:
    """Return a graph, what passes make of it as TracedLoops, and their remarks."""
    graph = graph_of(*outputs)
    loops, _ = optimized(graph, "scan-to-loop")
    work, remarks = optimized(loops, passes)
    return graph, work, remarks


def names(graph: Graph) -> list[str]:
    return sorted(view.name for view in views(graph))


def views(graph: Graph) -> list[LoopView]:
    nodes = [node for node in walk(graph.fgraph) if isinstance(node.op, TracedLoop)]
    return [LoopView.of(node) for node in nodes]


def check_compiled(graph: Graph, work: Graph, steps: Sequence[int], **values: Any) -> None:
    check(graph, work, tuple(steps), **values)
    for mode in BACKENDS:
        one, other = (compiled(g.inputs, g.outputs, mode) for g in (graph, work))
        for count in steps:
            data = arguments(graph, **{**VALUES, "n": count, **values})
            assert_same_outcomes(one(*data), other(*data))


@pytest.mark.tiered
def test_case_1_equal_steps_of_what_reads_the_index() -> None:
    ys = scan(lambda s, y: y * s, sequences=[S], outputs_info=[X], n_steps=N, name="a")
    zs, logs = scan(
        lambda t, z: [z + t, pt.log(t)],
        sequences=[T],
        outputs_info=[X * 2, None],
        n_steps=N,
        name="b",
    )
    graph, work, remarks = merged(ys, zs[-1], logs)
    assert names(work) == ["a&b"]
    assert remarks == ["passed a: merged with `b`"]
    assert len(views(work)[0].of_kind(SlotKind.INDEX)) == 1
    check_compiled(graph, work, (1, 2, 5))


def test_case_1_steps_are_lengths_of_sequences() -> None:
    one = scan(lambda s, t, y: y * s + t, sequences=[S, T], outputs_info=[X])
    other = scan(lambda t, s, y: y - s * t, sequences=[T, S], outputs_info=[X])
    graph, work, _ = merged(one, other)
    assert len(views(work)) == 1
    check(graph, work, (1,))


def test_case_1_as_few_loops_as_the_longest_chain() -> None:
    a = grow(2, name="a")
    c, b = grow(3, a[-1], name="c"), grow(4, name="b")
    graph, work, remarks = merged(c, b, a)
    assert names(work) == ["a&b", "c"]
    assert remarks == ["passed a: merged with `b`"]
    check(graph, work, (1, 2, 5))


def test_case_1_generators() -> None:
    first, second = (pt.random.type.random_generator_type(name) for name in ("first", "second"))

    def step(y: Any, generator: Any) -> list[Any]:
        generator, draw = pt.random.normal(rng=generator).owner.outputs
        return [y + draw, generator]

    ys, g = scan(step, outputs_info=[X, first], n_steps=N)
    zs, h = scan(step, outputs_info=[X, second], n_steps=N)
    draws = [pt.random.normal(rng=generator).owner.outputs[1] for generator in (g, h)]
    graph = from_io([X, N, first, second], [ys, zs, *draws])
    loops, _ = optimized(graph, "scan-to-loop")
    work, _ = optimized(loops, "merge-scans")
    assert [len(view.of_kind(SlotKind.STATE)) for view in views(work)] == [4]
    for steps in (0, 1, 5):
        runs = []
        for one in (graph, work):
            generators = map(np.random.default_rng, (1, 2))
            given: list[Any] = [np.asarray(1.1), np.asarray(steps), *generators]
            runs.append(evaluator(one.inputs, one.outputs)(given))
        assert_same_outcomes(*runs)


def test_case_1_gradients() -> None:
    ys, zs = grow(2, name="a"), scan(pt.tanh, outputs_info=[X], n_steps=N, name="b")
    graph = from_io([X, N], [ys, zs])
    work, _ = optimized(graph, "scan-to-loop,merge-scans")
    slopes = []
    for one in (graph, work):
        cost: Any = sum((output**2).sum() for output in one.outputs)
        slopes.append(from_io(one.inputs, [cost, pytensor.grad(cost, one.inputs[0])]))
    assert names(work) == ["a&b"]
    check(*slopes, (0, 1, 5))


def bounded(factor: float, bound: float, name: str) -> Any:
    return scan(
        lambda c, y: ([c * 2, y * factor], until(c > bound)),
        outputs_info=[X, X],
        n_steps=N,
        name=name,
    )


@pytest.mark.tiered
def test_case_2_one_condition() -> None:
    _, ys = bounded(3.0, 9.0, "a")
    _, zs = bounded(0.5, 9.0, "b")
    graph, work, _ = merged(ys, zs[-1], ys.shape[0] + zs.shape[0])
    assert names(work) == ["a&b"]
    check_compiled(graph, work, (1, 2, 9))


def test_twins_of_case_2() -> None:
    _, ys = bounded(3.0, 9.0, "a")
    _, zs = bounded(0.5, 8.0, "b")
    _, work, remarks = merged(ys, zs)
    assert names(work) == ["a", "b"]
    assert remarks == ["missed b: not merged with `a`: their stop conditions differ"]
    _, work, remarks = merged(ys, grow(2, name="c"))
    assert names(work) == ["a", "c"]
    assert remarks == ["missed c: not merged with `a`: only one has a stop condition"]


def test_twins_of_case_1() -> None:
    assert merged(grow(2), grow(3, steps=M), grow(4, steps=N + 1))[2] == []
    chosen = pt.switch(X > 0, 1, 0)
    branch = pytensor.ifelse(chosen, grow(2, name="a")[-1], X)
    assert "a branch of an IfElse decides" in merged(branch, grow(3, name="b"))[2][0]


def test_twin_a_scan_and_a_traced_loop() -> None:
    loops, _ = optimized(graph_of(grow(2, name="a")), "scan-to-loop")
    (ys,) = loops.outputs
    zs = scan(lambda z: z * 3, outputs_info=[loops.inputs[0]], n_steps=loops.inputs[1], name="b")
    _, remarks = optimized(graph_of(ys, zs), "merge-scans")
    assert remarks == []


@pytest.mark.tiered
def test_merge_duplicates_merges_constants() -> None:
    ys = scan(
        lambda s, t, y, a, b: y * a + b * s + t,
        sequences=[pt.exp(S + 1), pt.exp(1 + S)],
        outputs_info=[X],
        non_sequences=[X * 2, X * 2],
        n_steps=N,
    )
    graph, work, remarks = merged(ys, passes="merge-duplicates")
    assert [len(view.of_kind(SlotKind.CONSTANT)) for view in views(work)] == [2]
    assert len(remarks) == 2
    check_compiled(graph, work, (0, 1, 5))
    graph, work, remarks = merged(
        scan(lambda y, a, b: y * a + b, outputs_info=[X], non_sequences=[X - 1, 1 - X], n_steps=N),
        passes="merge-duplicates",
    )
    assert [len(view.of_kind(SlotKind.CONSTANT)) for view in views(work)] == [2]
    assert remarks == []


@settings(max_examples=examples(15, 150))
@given(scan_graphs())
def test_passes_of_both_forms_keep_values(generated: GeneratedScan) -> None:
    """Every loop of a graph has a counterpart that it may be merged with."""
    graph = with_twin(generated)
    expected, work = evaluator(graph.inputs, graph.outputs), graph.copy()
    passed_through(PASSES, work.fgraph)
    work.fgraph.check_integrity()
    actual = evaluator(work.inputs, work.outputs)
    for values in generated.arguments:
        note(str(values))
        olds, got = expected(values), actual(values)
        # A Scan may raise where a sequence is too short, and no step needs the row.
        wanted = [
            new if isinstance(old, Exception) or has_unknown_shape(old, new) else old
            for old, new in zip(olds, got, strict=True)
        ]
        assert_same_outcomes(wanted, got)
