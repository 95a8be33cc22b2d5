"""The pipeline: bodies first, to a fixpoint, with a budget, checks and a watcher."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.environment import STRICT
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import PassError
from scanopt_cli.ir.scan_view import ScanView, is_loop
from scanopt_cli.passes.of_scans.compile_safe.compile_safe import CompileSafe
from scanopt_cli.passes.of_scans.save_mem.save_mem import SaveMem
from scanopt_cli.passes.remove_unused import RemoveUnused
from scanopt_cli.pipeline import contract, driver
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.pipeline.optimizing import Snapshot, optimize
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.remarks import Code
from scanopt_cli.reports.remark_text import failures, text_of
from support.benchmarks.growing_graphs import states
from support.graph_building import graph_of, power, scan, scan_views, wasteful

X = pt.dscalar("x")
N = pt.lscalar("n")


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
    graph = graph_of(wasteful("a"), wasteful("b"), wasteful("c"))
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
    graph = graph_of(wasteful("a"))
    before = digest(graph)
    names = [variable.name for variable in graph.inputs]
    result = optimize(graph)
    assert result.changed
    assert digest(graph) == before
    assert [variable.name for variable in result.graph.inputs] == names


def test_optimize_takes_every_form_of_graph() -> None:
    graph = graph_of(wasteful("a"))
    forms = [graph, graph.fgraph, graph.fgraph.freeze(), (graph.inputs, graph.outputs)]
    digests = {digest(optimize(form).graph) for form in forms}
    assert len(digests) == 1
    assert optimize(graph, [RemoveUnused()]).pipeline == "remove-unused"


def test_watcher_sees_each_change() -> None:
    seen: list[Snapshot] = []
    result = optimize(graph_of(wasteful("a")), "remove-unused,save-mem", watch=seen.append)
    assert [snapshot.pass_name for snapshot in seen] == ["remove-unused", "save-mem"]
    assert statistics(seen[-1].graph.fgraph) == result.after


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
    graph = graph_of(wasteful("good"), wasteful("bad"))
    (run,) = run_pipeline(graph.fgraph, [_Failing()], strict=False)
    views = {view.name: view for view in scan_views(graph.fgraph)}
    assert {name: len(view.outputs()) for name, view in views.items()} == {"good": 1, "bad": 2}
    (failed,) = failures([run])
    assert failed.scan == "bad"
    assert text_of(failed).endswith("so this stays as it is: ValueError: no such loop")
    with pytest.raises(ValueError, match="no such loop"):
        run_pipeline(graph.fgraph, [_Failing()], strict=True)


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


def test_the_line_of_a_loop_is_looked_for_once_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of a thousand outputs, each with a remark and a stack of its own, has one line."""
    asked: list[Apply] = []

    def counted(node: Apply) -> None:
        asked.append(node)

    monkeypatch.setattr(contract, "place_of", counted)
    (run,) = run_pipeline(states(20).fgraph, parse("save-mem"))
    assert sum(remark.count for remark in run.remarks) >= 20
    assert len(asked) == len(set(asked))
