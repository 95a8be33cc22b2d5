"""A pipeline runs to a fixpoint, phase by phase, and keeps what it found out from run to run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.scalar.basic import Add

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.pipeline.driver import PipelineMemory
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.pipeline.runner import PipelineRunner, run_pipeline
from scanopt_cli.remarks import Code
from scanopt_cli.reports.remark_text import text_of
from support.graph_building import graph_of, scan, wasteful

X = pt.dscalar("x")
N = pt.lscalar("n")


@dataclass(frozen=True)
class _Flip(Pass):
    """Make a difference of a sum, and a sum of a difference, for ever."""

    name: ClassVar[str] = "flip"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        (old,) = context.fgraph.outputs
        left, right = old.owner.inputs
        is_sum = isinstance(old.owner.op.scalar_op, Add)
        yield Rewrite({old: left - -right if is_sum else left + right.owner.inputs[0]})


@dataclass(frozen=True)
class _Swap(Pass):
    """Swap the operands of a sum, which changes nothing."""

    name: ClassVar[str] = "swap"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        (old,) = context.fgraph.outputs
        left, right = old.owner.inputs
        yield Rewrite({old: right + left})


@dataclass(frozen=True)
class _Looking(Pass):
    """Look at each graph, and write down how many nodes it has."""

    name: ClassVar[str] = "looking"
    everywhere: ClassVar[bool] = True
    seen: ClassVar[list[int]] = []

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        self.seen.append(len(context.fgraph.apply_nodes))
        yield from ()


def test_endless_passes_are_stopped() -> None:
    graph = graph_of(X + N)
    (run,) = run_pipeline(graph.fgraph, [_Flip()])
    assert run.changed
    assert text_of(run.remarks[-1]) == (
        "stopped after 7 rounds: flip would change the graph again and again; "
        "the smallest graph is kept"
    )
    graph.fgraph.check_integrity()


def test_what_one_run_found_out_the_next_does_not_look_at_again() -> None:
    graph = graph_of(wasteful("one"))
    _Looking.seen.clear()
    runner = PipelineRunner([_Looking()])
    assert [run.changed for _ in range(2) for run in runner.run(graph.fgraph)] == [False, False]
    inside, outside = _Looking.seen
    assert inside == 2 < outside
    # Of another graph with the same body, the graph alone is new.
    other = graph_of(pt.exp(graph.fgraph.outputs[0]))
    runner.run(other.fgraph)
    assert _Looking.seen == [inside, outside, outside + 1]


@dataclass(frozen=True)
class _Twice(Pass):
    """Negate twice what each body returns first, and say that it is no rewrite."""

    name: ClassVar[str] = "twice"
    everywhere: ClassVar[bool] = True

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        if context.path:
            first = context.fgraph.outputs[0]
            yield Rewrite({first: pt.neg(pt.neg(first))}, count=0)


def test_passes_share_a_body_until_one_touches_it() -> None:
    """What a pass does to a body and does not count is dropped; the next one must not see it."""
    _Looking.seen.clear()
    fgraph = graph_of(wasteful("one")).fgraph
    before = digest(fgraph)
    run_pipeline(fgraph, [_Twice(), _Looking(), _Looking()])
    inside, outside = _Looking.seen[:2]
    assert inside == 2 < outside
    assert _Looking.seen == [inside, outside] * 2
    assert digest(fgraph) == before


def test_each_run_tells_what_it_did_itself() -> None:
    runner = PipelineRunner(parse("remove-unused"))
    runs = [run for _ in range(2) for run in runner.run(graph_of(wasteful("one")).fgraph)]
    assert [(run.changed, run.rewrites, len(run.remarks)) for run in runs] == [(True, 1, 1)] * 2


def test_bodies_told_apart_are_told_apart_in_a_later_graph_too() -> None:
    """What is known of Ops is kept; what is known of a graph that may change is not."""
    digests = PipelineMemory()
    graph = graph_of(X + N)
    before = digests.form_of(graph.fgraph)
    graph.fgraph.replace_all([(graph.fgraph.outputs[0], X - N)], import_missing=True)
    assert digests.form_of(graph.fgraph) != before == digests.form_of(graph_of(X + N).fgraph)


def test_a_pass_that_leaves_the_graph_as_it_was_has_not_changed_it() -> None:
    graph = graph_of(X + N)
    seen: list[Pass] = []
    (run,) = run_pipeline(graph.fgraph, [_Swap()], watch=lambda item, *_: seen.append(item))
    assert (run.changed, run.rewrites, seen) == (False, 1, [])
    result = optimize(graph_of(X + N), [_Swap()])
    assert not result.changed


def test_equal_constants_that_are_merged_are_no_change() -> None:
    ones = [pt.constant(np.ones(3)) for _ in range(2)]
    graph = graph_of(pt.exp(X) * ones[0], pt.exp(N) * ones[1])
    seen: list[str] = []
    result = optimize(graph, "merge-equal", watch=lambda snapshot: seen.append(snapshot.pass_name))
    assert "merged 1 constant" in text_of(result.passes[0].remarks[0])
    assert (result.changed, result.passes[0].changed, seen) == (False, False, [])


def test_two_passes_that_undo_each_other_are_not_named() -> None:
    result = optimize(graph_of(X + N), [_Flip(), _Flip()])
    assert [result.changed, *(run.changed for run in result.passes)] == [False] * 3


def test_running_twice_changes_nothing() -> None:
    first = optimize(graph_of(wasteful("a")))
    second = optimize(first.graph)
    assert not second.changed
    assert second.after == first.after


@dataclass(frozen=True)
class _Grow(Pass):
    """Add zero and take it away again, by turns."""

    name: ClassVar[str] = "grow"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        (old,) = context.fgraph.outputs
        if old.owner.op == pt.neg:
            yield Rewrite({old: old.owner.inputs[0].owner.inputs[0]})
        else:
            yield Rewrite({old: pt.neg(pt.neg(old))})


def test_of_graphs_that_return_the_smallest_is_kept() -> None:
    graph = graph_of(X + N)
    before = digest(graph.fgraph)
    (run,) = run_pipeline(graph.fgraph, [_Grow()])
    assert digest(graph.fgraph) == before
    assert run.remarks[-1].code is Code.PASSES_CYCLE


@dataclass(frozen=True)
class _Late(_Flip):
    """Make a difference of a sum once, after what stands before."""

    name: ClassVar[str] = "late"
    starts_phase: ClassVar[bool] = True

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        (old,) = context.fgraph.outputs
        left, right = old.owner.inputs
        if right in context.fgraph.inputs:
            yield Rewrite({old: right - -left})


@dataclass(frozen=True)
class _Deepen(Pass):
    """Add zeros to the right operand of a sum, one in each round, up to three."""

    name: ClassVar[str] = "deepen"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        (old,) = context.fgraph.outputs
        if sum(node.op == pt.add for node in context.fgraph.apply_nodes) < 4:
            left, right = old.owner.inputs
            yield Rewrite({old: (left + 0) + right})


def test_a_phase_waits_for_the_fixpoint_before_it() -> None:
    graph = graph_of(X + N)
    seen: list[str] = []
    passes = [_Deepen(), _Late()]
    run_pipeline(graph.fgraph, passes, watch=lambda item, *_: seen.append(item.name))
    assert seen == ["deepen", "deepen", "deepen", "late"]


def test_scans_are_turned_when_they_are_clean() -> None:
    """One pipeline, repeated until it settles, as in several runs."""
    xs = scan(lambda x: x * 2 + pt.zeros(()), outputs_info=[X], n_steps=N)
    graph = graph_of(pt.grad(xs[-1], X))
    first = optimize(graph, "grad").graph
    apart = optimize(first, "scan-to-loop,trace-to-last").graph
    both = "grad,scan-to-loop,trace-to-last"
    settled = optimize(apart, both).graph
    assert digest(optimize(graph, both).graph.fgraph) == digest(settled.fgraph)
