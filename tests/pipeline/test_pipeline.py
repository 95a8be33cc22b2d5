"""The pipeline: bodies first, to a fixpoint, with a budget, checks and a watcher."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import Add

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.environment import STRICT
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import PassError
from scanopt_cli.ir.scan_view import ScanView, is_loop
from scanopt_cli.passes.compile_safe.compile_safe import CompileSafe
from scanopt_cli.passes.remove_unused import RemoveUnused
from scanopt_cli.passes.save_mem.save_mem import SaveMem
from scanopt_cli.pipeline import driver
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.pipeline.driver import Forms
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.pipeline.optimizing import Snapshot, optimize
from scanopt_cli.pipeline.runner import PipelineRunner, run_pipeline
from scanopt_cli.remarks import Code
from scanopt_cli.reports.remark_text import failures, text_of
from support.graph_building import graph_of, power, scan, scan_views

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
class _Widen(Pass):
    """Break the signature."""

    name: ClassVar[str] = "widen"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        context.fgraph.add_output(context.fgraph.outputs[0])
        yield Rewrite()


@dataclass(frozen=True)
class _Whole(ScanPass):
    """Want whole buffers."""

    name: ClassVar[str] = "whole"
    accepts_trimmed: ClassVar[bool] = False

    def rewrite(self, view, context):
        raise AssertionError("reached a Scan")


@dataclass(frozen=True)
class _Looking(Pass):
    """Look at each graph, and write down how many nodes it has."""

    name: ClassVar[str] = "looking"
    everywhere: ClassVar[bool] = True
    seen: ClassVar[list[int]] = []

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        self.seen.append(len(context.fgraph.apply_nodes))
        yield from ()


def _wasteful(name: str):
    ys, _ = scan(lambda y: [y * 2, y + 1], outputs_info=[X, None], n_steps=N, name=name)
    return ys[-1]


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
    graph = graph_of(_wasteful("one"))
    _Looking.seen.clear()
    runner = PipelineRunner([_Looking()])
    assert [run.changed for _ in range(2) for run in runner.run(graph.fgraph)] == [False, False]
    inside, outside = _Looking.seen
    assert inside == 2 < outside
    # Of another graph with the same body, the graph alone is new.
    other = graph_of(pt.exp(graph.fgraph.outputs[0]))
    runner.run(other.fgraph)
    assert _Looking.seen == [inside, outside, outside + 1]


def test_each_run_tells_what_it_did_itself() -> None:
    runner = PipelineRunner(parse("remove-unused"))
    runs = [run for _ in range(2) for run in runner.run(graph_of(_wasteful("one")).fgraph)]
    assert [(run.changed, run.rewrites, len(run.remarks)) for run in runs] == [(True, 1, 1)] * 2


def test_bodies_told_apart_are_told_apart_in_a_later_graph_too() -> None:
    """What is known of Ops is kept; what is known of a graph that may change is not."""
    forms = Forms()
    graph = graph_of(X + N)
    before = forms.form_of(graph.fgraph)
    graph.fgraph.replace_all([(graph.fgraph.outputs[0], X - N)], import_missing=True)
    assert forms.form_of(graph.fgraph) != before == forms.form_of(graph_of(X + N).fgraph)


def test_a_pass_that_leaves_the_graph_as_it_was_has_not_changed_it() -> None:
    graph = graph_of(X + N)
    seen: list[Pass] = []
    (run,) = run_pipeline(graph.fgraph, [_Swap()], watch=lambda item, _: seen.append(item))
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


def test_a_pass_that_changes_the_signature_is_told() -> None:
    graph = graph_of(X + N)
    with pytest.raises(PassError, match="widen changed the graph's inputs or the types"):
        run_pipeline(graph.fgraph, [_Widen()])


def test_what_wants_whole_buffers_cannot_follow_what_trims_them() -> None:
    with pytest.raises(PassError, match="whole cannot run after save-mem"):
        run_pipeline(graph_of(X).fgraph, [SaveMem(), _Whole()])


def test_trimmed_loops_are_kept_from_what_wants_whole_buffers() -> None:
    _, xs = power(N)
    trimmed = optimize(graph_of(xs[-1]), "save-mem").graph
    (run,) = run_pipeline(trimmed.fgraph, [_Whole()])
    assert [text_of(remark) for remark in run.remarks] == [
        "the buffers of sit_sot[0] are not proved to hold every step"
    ]


@pytest.mark.parametrize("limit", [0, 1, 2, 9])
def test_limit_counts_rewrites(limit: int) -> None:
    graph = graph_of(_wasteful("a"), _wasteful("b"), _wasteful("c"))
    result = optimize(graph, "remove-unused", limit=limit)
    assert result.before.nit_sot - result.after.nit_sot == min(limit, 3)
    assert sum(run.rewrites for run in result.passes) == min(limit, 3)


def test_equal_bodies_share_one_rewrite() -> None:
    def outer(y):
        ys, _ = scan(lambda z: [z * 2, z + 1], outputs_info=[y, None], n_steps=3, name="inner")
        return ys[-1]

    loops = [scan(outer, outputs_info=[X * k], n_steps=N, name="outer")[-1] for k in range(4)]
    result = optimize(graph_of(*loops), "remove-unused")
    assert (result.before.nit_sot, result.after.nit_sot) == (4, 0)
    assert sum(run.rewrites for run in result.passes) == 1


def test_a_body_that_many_others_apply_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = 0

    def counting(node: Apply) -> bool:
        nonlocal searched
        searched += 1
        return is_loop(node)

    v = pt.dvector("v")
    inside: Any = v
    for i in range(100):
        inside = pt.tanh(inside) + float(i)
    shared = OpFromGraph([v], [inside])
    x = pt.dvector("x")
    others = [OpFromGraph([v], [shared(v * float(i))])(x) for i in range(20)]
    monkeypatch.setattr(driver, "is_loop", counting)
    optimize(graph_of(sum(others)), "remove-unused")
    assert 0 < searched < 1_000


def test_long_chains_of_loops_that_feed_only_dead_slots() -> None:
    state = X
    for _ in range(30):
        # The next loop uses this one's result in a state that nobody reads.
        ys, zs = scan(lambda y, z: [y * 2, z + 1], outputs_info=[X, state], n_steps=N)
        state = zs[-1]
    result = optimize(graph_of(ys[-1]), "remove-unused")
    assert (result.before.scans, result.after.scans) == (30, 1)
    assert result.after.sit_sot == 1


def test_what_each_nesting_frees_in_the_next() -> None:
    def nested(depth: int, y):
        if depth == 0:
            return y * 2, y + 1
        ys, zs = scan(lambda z: list(nested(depth - 1, z)), outputs_info=[y, None], n_steps=2)
        return ys[-1], zs[-1]

    used, _ = nested(5, X)
    result = optimize(graph_of(used), "remove-unused")
    assert (result.before.nit_sot, result.after.nit_sot) == (5, 0)


def test_optimize_leaves_its_argument_as_it_was() -> None:
    graph = graph_of(_wasteful("a"))
    before = digest(graph)
    names = [variable.name for variable in graph.inputs]
    result = optimize(graph)
    assert result.changed
    assert digest(graph) == before
    assert [variable.name for variable in result.graph.inputs] == names


def test_optimize_takes_every_form_of_graph() -> None:
    graph = graph_of(_wasteful("a"))
    forms = [graph, graph.fgraph, graph.fgraph.freeze(), (graph.inputs, graph.outputs)]
    digests = {digest(optimize(form).graph) for form in forms}
    assert len(digests) == 1
    assert optimize(graph, [RemoveUnused()]).pipeline == "remove-unused"


def test_watcher_sees_each_change() -> None:
    seen: list[Snapshot] = []
    result = optimize(graph_of(_wasteful("a")), "remove-unused,save-mem", watch=seen.append)
    assert [snapshot.pass_name for snapshot in seen] == ["remove-unused", "save-mem"]
    assert statistics(seen[-1].graph.fgraph) == result.after


def test_running_twice_changes_nothing() -> None:
    first = optimize(graph_of(_wasteful("a")))
    second = optimize(first.graph)
    assert not second.changed
    assert second.after == first.after


def test_a_body_keeps_the_types_that_it_returns() -> None:
    """What a rewrite learns of lengths inside must not reach what is around the body."""

    @dataclass(frozen=True)
    class Narrow(Pass):
        """Return the same, of a known length."""

        name: ClassVar[str] = "narrow"
        everywhere: ClassVar[bool] = True

        def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
            old: Any = context.fgraph.outputs[0]
            if context.path and old.type.shape != (3,):
                context.passed(None, Code.SIMPLIFIED, before=1, after=1)
                yield Rewrite({old: pt.specify_shape(old, (3,))})

    x = pt.dvector("x")
    graph = graph_of(OpFromGraph([x], [x + 1])(x))
    before = digest(graph.fgraph)
    (run,) = run_pipeline(graph.fgraph, (Narrow(),))
    assert not run.changed
    assert run.rewrites == 0
    assert digest(graph.fgraph) == before
    (remark,) = run.remarks
    assert (remark.kind, text_of(remark)) == (
        "missed",
        "its body is left as it is: a rewrite would change its output types",
    )


@dataclass(frozen=True)
class _Failing(ScanPass):
    """Raise an error for loops that are called ``bad``, and remove what others do not need."""

    name: ClassVar[str] = "failing"

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        if view.name == "bad":
            raise ValueError("no such loop")
        return RemoveUnused().rewrite(view, context)


def test_an_error_of_a_pass_leaves_its_loop_alone() -> None:
    graph = graph_of(_wasteful("good"), _wasteful("bad"))
    (run,) = run_pipeline(graph.fgraph, [_Failing()], strict=False)
    views = {view.name: view for view in scan_views(graph.fgraph)}
    assert {name: len(view.outputs()) for name, view in views.items()} == {"good": 1, "bad": 2}
    (failed,) = failures([run])
    assert failed.scan == "bad"
    assert text_of(failed).endswith("so this stays as it is: ValueError: no such loop")
    with pytest.raises(ValueError, match="no such loop"):
        run_pipeline(graph.fgraph, [_Failing()], strict=True)


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
    run_pipeline(graph.fgraph, passes, watch=lambda item, _: seen.append(item.name))
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


def test_an_error_of_compile_safe_is_no_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pass, PyTensor would compile some of the results wrongly."""

    def rewrites(self: CompileSafe, context: PassContext) -> Iterator[Rewrite]:
        yield Rewrite({})
        raise ZeroDivisionError

    monkeypatch.delenv(STRICT)
    monkeypatch.setattr(CompileSafe, "rewrites", rewrites)
    with pytest.raises(ZeroDivisionError):
        optimize(graph_of(X + N), "merge-equal")


def test_types_that_do_not_fit_change_nothing() -> None:
    graph = graph_of(X + N, X * N)
    first, second = graph.outputs
    before = digest(graph.fgraph)
    with pytest.raises(TypeError):
        Rewrite({first: X - N, second: pt.dvector("v")}).apply(graph.fgraph, "test")
    assert digest(graph.fgraph) == before


def test_a_loop_that_pytensor_would_refuse_stays() -> None:
    """It makes a loop whose state gets another type in each step, but not with another body."""
    start, rows = pt.tensor("start", shape=(1, 2)), pt.matrix("rows", shape=(None, 2))
    ys = scan(lambda h, r: (h * r) * 1.0, outputs_info=[start], non_sequences=[rows], n_steps=4)
    graph = graph_of(ys[-1])
    before = digest(graph.fgraph)
    (run,) = run_pipeline(graph.fgraph, parse("simplify"))
    assert digest(graph.fgraph) == before
    assert [remark.code for remark in run.remarks] == [Code.BODY_LEFT]
