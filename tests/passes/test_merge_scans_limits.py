"""merge-scans: what keeps loops apart, errors, loops inside of others, names, remarks, growth."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest
from hypothesis import given, note, settings
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.raise_op import Assert
from pytensor.scan.op import Scan

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.ir import levels as levels_module
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.levels import IfElse
from scanopt_cli.passes.merge_duplicates import MergeDuplicates
from scanopt_cli.passes.merge_scans import merge_scans
from scanopt_cli.passes.merge_scans.merge_scans import MergeScans
from support.evaluating import assert_same_outcomes, evaluator
from support.generated.strategies import GeneratedScan, scan_graphs, with_twin
from support.graph_building import graph_of, only_scan, scan
from support.merging_scans import M, N, S, X, check, grow, merged, names
from support.tiers import examples


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"truncate_gradient": 5}, "truncate_gradient is 5, not -1"),
        ({"profile": "p"}, "profile is p, not None"),
        ({"allow_gc": True}, "allow_gc is True, not False"),
    ],
)
def test_twin_other_settings(settings: dict[str, Any], told: str) -> None:
    graph = graph_of(grow(2, name="a"), grow(3, name="b", **settings))
    assert merged(graph)[1] == [f"missed b: not merged with `a`: {told}"]
    graph = graph_of(grow(2, name="a", **settings), grow(3, name="b", **settings))
    after, _ = merged(graph)
    assert names(after) == ["a&b"]
    op = only_scan(after.fgraph).op
    assert {key: getattr(op, key) for key in settings} == settings


def test_twin_other_modes() -> None:
    with pytest.warns(FutureWarning, match="mode"):
        ys = grow(3, name="b", mode="FAST_COMPILE")
    _, remarks = merged(graph_of(grow(2, name="a"), ys))
    assert remarks == ["missed b: not merged with `a`: mode is FAST_COMPILE, not None"]


def test_twin_graph_that_works_in_place() -> None:
    """`b` needs the value that is written when `a` has read what it is written over."""
    written = pt.inc_subtensor(S[:1], 1.0, inplace=True)
    a = scan(lambda s, y: y + s, sequences=[S], outputs_info=[X], n_steps=N, name="a")
    b = scan(lambda s, y: y - s, sequences=[written], outputs_info=[X], n_steps=N, name="b")
    after, remarks = merged(graph_of(a, b))
    assert names(after) == ["a", "b"]
    assert remarks == ["missed graph: nothing is rewritten: IncSubtensor works in place"]
    assert merged(graph_of(a, written))[1] == []


def test_twin_step_that_works_in_place() -> None:
    def step(y):
        return pt.inc_subtensor(pt.zeros(3)[:1], y, inplace=True).sum()

    graph = graph_of(grow(2, name="a"), scan(step, outputs_info=[X], n_steps=N, name="b"))
    assert merged(graph)[1] == ["missed b: not merged with `a`: a step works in place"]


def test_twin_loop_that_a_branch_can_do_without() -> None:
    """Merged with a loop that always runs, it would always run too, and raise."""
    c = pt.bscalar("c")
    bad = scan(lambda y: Assert("no")(y, pt.lt(y, 0)), outputs_info=[X], n_steps=N, name="bad")
    a, b = grow(2, name="a"), grow(3, name="b")
    graph = graph_of(IfElse(1)(c, a[-1], bad[-1]), b[-1])
    after, remarks = merged(graph)
    assert names(after) == ["a", "b", "bad"]
    told = "a branch of an IfElse decides whether it runs"
    assert remarks == [f"missed a: not merged with `b`: {told}"]
    check(graph, after, (1, 3))
    # The condition itself is always computed.
    graph = graph_of(IfElse(1)(pt.gt(a[-1], b[-1]), X, X + 1))
    assert names(merged(graph)[0]) == ["a&b"]


def test_errors_stay_when_all_outputs_are_asked_for() -> None:
    def careful(y):
        return Assert("large")(y * 2, pt.lt(y, 5))

    short = scan(lambda s, y: y + s, sequences=[S], outputs_info=[X], n_steps=N)
    loops = [grow(2), scan(careful, outputs_info=[X], n_steps=N), short]
    graph = graph_of(sum(loop.sum() for loop in loops))
    after, _ = merged(graph)
    assert len(names(after)) == 1
    check(graph, after, (-1, 0, 2, 3, 5, 9), s=[1.0, 1.0])
    check(graph, after, (-1, 0, 2, 3, 5, 9), s=[1.0] * 20)


def test_loops_of_other_static_shapes() -> None:
    fixed, free = pt.dvector("fixed", shape=(3,)), pt.dmatrix("free")
    graph = graph_of(grow(2, fixed), grow(3, free), grow(4))
    after, _ = merged(graph)
    assert len(names(after)) == 1
    types = [sorted(map(str, (v.type for v in g.outputs))) for g in (graph, after)]
    assert types[0] == types[1]
    check(graph, after, fixed=[1.0, 2.0, 3.0], free=[[1.0, 2.0]])


def test_inside_of_loops() -> None:
    def outer(y):
        return grow(1.5, y, M, "a")[-1] + grow(0.5, y, M, "b")[-1]

    graph = graph_of(scan(outer, outputs_info=[X], n_steps=N, name="outer"))
    after, remarks = merged(graph)
    assert statistics(after.fgraph).scans == 2
    assert remarks == ["passed outer/a: merged with `b`"]
    check(graph, after)


def test_inside_of_loops_that_were_merged() -> None:
    def outer(factor: float, name: str) -> Any:
        def step(y, m):
            return grow(factor, y, m, name)[-1]

        ys = scan(step, outputs_info=[X], non_sequences=[M], n_steps=N, name=f"outer_{name}")
        return ys[-1]

    graph = graph_of(outer(1.5, "a"), outer(0.5, "b"))
    after, _ = merged(graph, MergeScans(), MergeDuplicates())
    assert statistics(after.fgraph).scans == 2
    check(graph, after, (1, 2, 5))


def test_inside_op_from_graph() -> None:
    inner = pt.dscalar("inner")
    op = OpFromGraph([inner, N], [grow(2, inner)[-1], grow(3, inner)[-1]], name="layer")
    graph = graph_of(*op(X, N))
    after, remarks = merged(graph)
    assert statistics(after.fgraph).scans == 1
    assert remarks == ["passed layer/grow#1: merged with `grow#2`"]
    check(graph, after, (1, 2, 5))


def test_gradient_of_merged_loops() -> None:
    ys, zs = grow(2), scan(pt.tanh, outputs_info=[X], n_steps=N)
    graph = graph_of(ys[-1], zs)
    after, _ = merged(graph)

    def differentiated(part: Graph) -> Graph:
        (x,) = (v for v in part.inputs if v.name == "x")
        return from_io(part.inputs, [pt.grad(part.outputs[0] + part.outputs[1].sum(), x)])

    check(differentiated(graph), differentiated(after), (1, 2, 5))


@pytest.mark.parametrize(("limit", "left"), [(0, 4), (1, 3), (2, 2)])
def test_limit_counts_merged_loops(limit: int, left: int) -> None:
    graph = graph_of(grow(2), grow(3), grow(4, steps=M), grow(5, steps=M))
    after, remarks = merged(graph, limit=limit)
    assert (len(names(after)), len(remarks)) == (left, limit)
    check(graph, after)


def test_names_stay_short() -> None:
    graph = graph_of(*(grow(k, name=f"loop{k}") for k in range(1, 10)))
    after, remarks = merged(graph)
    assert names(after) == ["loop1&loop2&loop3&loop4&..."]
    told = "`loop2`, `loop3`, `loop4`, `loop5` and 4 more"
    assert remarks == [f"passed loop1: merged with {told}"]


def test_no_more_remarks_than_loops() -> None:
    loops = [grow(k, name=f"loop{k}", truncate_gradient=k % 20 + 1) for k in range(1, 41)]
    _, remarks = merged(graph_of(*loops))
    kept = [remark for remark in remarks if remark.startswith("missed")]
    assert (len(kept), len(remarks)) == (19, 39)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the Scans that are made and the nodes whose inputs are looked at for levels."""
    counts = {"scans": 0, "nodes": 0}
    init, levels = Scan.__init__, levels_module.levels

    def made(self: Scan, *args: Any, **kwargs: Any) -> None:
        counts["scans"] += 1
        init(self, *args, **kwargs)

    class Looked(set[Apply]):
        def __contains__(self, node: object) -> bool:
            counts["nodes"] += 1
            return super().__contains__(node)

    monkeypatch.setattr(Scan, "__init__", made)
    monkeypatch.setattr(
        merge_scans, "levels", lambda nodes, passed_over: levels(nodes, Looked(passed_over))
    )
    return counts


@pytest.mark.deep
def test_many_loops_become_one_at_once(counted: dict[str, int]) -> None:
    graph = graph_of(*(grow(1 + k / 100) for k in range(300)))
    counted["scans"] = 0
    after, _ = merged(graph)
    assert (len(names(after)), counted["scans"]) == (1, 1)
    assert counted["nodes"] < 40 * len(graph.fgraph.apply_nodes)


def _chains(count: int) -> Graph:
    """Chains of loops that share nothing, each with a pair to merge."""
    results = []
    for place in range(count):
        n, x = pt.lscalar(f"n{place}"), pt.dscalar(f"x{place}")
        results += [grow(2, x, n)[-1], grow(3, grow(4, x, n)[-1], n)[-1]]
    return graph_of(*results)


@pytest.mark.deep
def test_work_grows_with_the_graph(counted: dict[str, int]) -> None:
    def looked(count: int) -> int:
        counted["nodes"] = 0
        after, _ = merged(_chains(count))
        assert len(names(after)) == 2 * count
        return counted["nodes"]

    assert looked(40) < 2.5 * looked(20)


@settings(max_examples=examples(5, 50))
@given(generated=scan_graphs())
def test_a_graph_and_its_twin_with_other_values(generated: GeneratedScan) -> None:
    """Every loop of a graph has a counterpart that it can be merged with, if it stops alike."""
    graph = with_twin(generated)
    after, remarks = merged(graph)
    note("\n".join(remarks))
    after.fgraph.check_integrity()
    both = [evaluator(part.inputs, part.outputs) for part in (graph, after)]
    for given_arguments in generated.arguments:
        assert_same_outcomes(*(evaluate_one(given_arguments) for evaluate_one in both))
    assert not any(remark.startswith("passed") for remark in merged(after)[1])
