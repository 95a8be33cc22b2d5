"""merge-scans: its legal cases by number, and a twin that must not fire for each precondition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, note, settings
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.raise_op import Assert
from pytensor.scan.op import Scan
from pytensor.scan.utils import until

from evaluating import assert_same_outcomes, evaluate, evaluator
from graph_building import arguments, graph_of, labels, only_scan, outputs_of, scan
from loop_building import build
from scanopt_cli.graphs import levels as levels_module
from scanopt_cli.graphs.graph import Graph, from_io
from scanopt_cli.graphs.levels import IfElse
from scanopt_cli.graphs.statistics import scan_views, statistics
from scanopt_cli.passes import merge_scans
from scanopt_cli.passes.merge_duplicates import MergeDuplicates
from scanopt_cli.passes.merge_scans import MergeScans
from scanopt_cli.passes.pipeline import run_pipeline
from scanopt_cli.passes.save_mem import SaveMem
from scanopt_cli.scans.buffers import trimmed
from strategies import GeneratedScan, scan_graphs

X = pt.dscalar("x")
N, M = pt.lscalars("n", "m")
S, T = pt.dvectors("s", "t")
VALUES = {
    "x": 1.1,
    "m": 2,
    "s": [0.5, 2.0, 3.0, 1.5, 0.1, 2.0],
    "t": [1.0, -1.0, 0.3, 2.0, 0.7],
    "start": [1.0, 2.0],
    "batch": [0.5, 1.0, 2.0],
    "other": [3.0, 1.0],
    "c": 1,
}


def merged(graph: Graph, *passes: Any, limit: int | None = None) -> tuple[Graph, list[str]]:
    """Run merge-scans, or ``passes``, on a copy; return it and its remarks."""
    work = graph.copy()
    runs = run_pipeline(work.fgraph, passes or [MergeScans()], limit=limit)
    return work, [
        f"{remark.kind} {remark.scan}: {remark.message}" for run in runs for remark in run.remarks
    ]


def names(graph: Graph) -> list[str]:
    return sorted(view.name for view in scan_views(graph.fgraph))


def check(graph: Graph, after: Graph, counts: tuple[int, ...] = (0, 1, 2, 5), **values) -> None:
    """Same values, and errors in the same cases, for few and for many steps."""
    for n in counts:
        given = {**VALUES, "n": n, **values}
        given = {v.name: given[str(v.name)] for v in graph.inputs}
        assert_same_outcomes(outputs_of(graph, **given), outputs_of(after, **given))


def grow(factor: float, start: Any = X, steps: Any = N, name: str = "grow", **settings: Any) -> Any:
    return scan(lambda y: y * factor, outputs_info=[start], n_steps=steps, name=name, **settings)


@pytest.mark.parametrize("steps", [N, 4, M + N])
def test_case_1_equal_steps(steps: Any) -> None:
    graph = graph_of(grow(2, steps=steps, name="a"), grow(3, steps=steps, name="b")[-1])
    after, remarks = merged(graph)
    assert names(after) == ["a&b"]
    assert remarks == ["changed a: merged with `b`"]
    assert trimmed(only_scan(after.fgraph)) == []
    check(graph, after)


def test_case_1_twin_other_steps() -> None:
    assert merged(graph_of(grow(2), grow(3, steps=M), grow(4, steps=N + 1)))[1] == []
    assert merged(graph_of(grow(2, steps=4), grow(3, steps=5)))[1] == []


def test_case_1_slots_of_every_kind() -> None:
    """States with taps, generators, outputs without state, sequences; and mit_mots below."""
    start, rng = pt.dvector("start"), pt.random.type.random_generator_type("rng")

    def first(a, b, c, generator):
        generator, draw = pt.random.normal(rng=generator).owner.outputs
        return [b + c + a, generator, draw * b]

    def second(a, b, generator, w):
        generator, draw = pt.random.normal(rng=generator).owner.outputs
        return [a + b * w, generator, draw - b]

    taps = {"initial": start, "taps": [-2, -1]}
    ys, g, zs = scan(first, sequences=[S], outputs_info=[taps, rng, None], n_steps=N)
    us, h, vs = scan(
        second, sequences=[T], outputs_info=[X, rng, None], non_sequences=[X * 2], n_steps=N
    )
    draws = [pt.random.normal(rng=generator).owner.outputs[1] for generator in (g, h)]
    outputs = [ys, zs, us, vs, *draws]
    graph = from_io([S, T, X, N, start, rng], outputs)
    after, _ = merged(graph)
    assert sorted(labels(only_scan(after.fgraph))) == [
        "mit_sot[0]",
        "nit_sot[0]",
        "nit_sot[1]",
        "non_seq[0]",
        "seq[0]",
        "seq[1]",
        "sit_sot[0]",
        "untraced[0]",
        "untraced[1]",
    ]
    for n in (0, 1, 5):
        given = {**VALUES, "n": n, "rng": np.random.default_rng(3)}
        values = [arguments(graph, **{str(v.name): given[str(v.name)] for v in graph.inputs})]
        values.append([*values[0][:-1], np.random.default_rng(3)])
        both = [
            evaluate(part.inputs, part.outputs, given)
            for part, given in zip((graph, after), values, strict=True)
        ]
        assert_same_outcomes(*both)


def test_case_1_loops_and_their_gradients() -> None:
    """The steps of a gradient are the rows of a buffer less one: as many as the loop's."""
    ys, zs = grow(2, name="a"), scan(pt.tanh, outputs_info=[X], n_steps=N, name="b")
    graph = graph_of(pt.grad((ys * ys).sum() + zs.sum(), X), ys[-1] + zs[-1])
    assert names(graph) == ["a", "b", "grad_of_a", "grad_of_b"]
    after, _ = merged(graph)
    assert names(after) == ["a&b", "grad_of_a&b"]
    assert statistics(after.fgraph).mit_mot == 2
    check(graph, after, (1, 2, 5))


def test_case_1_steps_are_lengths_of_sequences() -> None:
    """Every call of `scan` makes another minimum; buffers are seen to be whole all the same."""

    def over(*sequences: Any) -> Any:
        return scan(lambda *parts: sum(parts), sequences=list(sequences), outputs_info=[X])

    u = pt.dvector("u")
    for one, other in (
        (over(S, T), over(T, S)),
        (over(S, T, u), over(u, pt.exp(T), S)),
        (over(S), over(S * 2)),
    ):
        graph = graph_of(one, other)
        after, _ = merged(graph)
        assert trimmed(only_scan(after.fgraph)) == []
        check(graph, after, u=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
        assert merged(after)[1] == []
    assert merged(graph_of(over(S, T), over(S, u)))[1] == []


def test_case_1_constant_steps_of_other_integers() -> None:
    steps = [pt.constant(4, dtype=dtype) for dtype in ("int8", "int64")]
    graph = graph_of(*(grow(2 + k, steps=count) for k, count in enumerate(steps)))
    for view, count in zip(scan_views(graph.fgraph), steps, strict=True):
        new = view.op.make_node(count, *view.node.inputs[1:])
        graph.fgraph.replace_all(list(zip(view.node.outputs, new.outputs, strict=True)))
    after, _ = merged(graph)
    assert names(after) == ["grow"]
    check(graph, after)


def test_case_1_as_few_loops_as_the_longest_chain() -> None:
    """`a` feeds `c`; `b` stands alone, and a chain of three beside them."""
    a = grow(2, name="a")
    c, b = grow(3, a[-1], name="c"), grow(4, name="b")
    chain = [grow(5, name="d")]
    for name in "ef":
        chain.append(grow(6, chain[-1][-1], name=name))
    graph = graph_of(c, b, chain[-1], a)
    after, remarks = merged(graph)
    assert names(after) == ["a&b&d", "c&e", "f"]
    assert all(remark.startswith("changed") for remark in remarks)
    check(graph, after, (1, 2, 5))


def test_case_1_twin_loops_that_depend_on_one_another() -> None:
    ys = grow(2)
    assert merged(graph_of(grow(3, ys[-1])))[1] == []
    # Nor is that told to be for another reason.
    assert merged(graph_of(grow(3, ys[-1], truncate_gradient=5)))[1] == []


def test_merging_one_pair_may_make_another_depend() -> None:
    """`a` feeds `c` and `d` feeds `b`: one of the pairs `a`, `b` and `c`, `d` is merged."""
    a, d = grow(2, name="a"), grow(3, steps=M, name="d")
    b, c = grow(4, d[-1], name="b"), grow(5, a[-1], steps=M, name="c")
    graph = graph_of(c, b)
    after, remarks = merged(graph)
    assert len(names(after)) == 3
    assert len(remarks) == 1
    check(graph, after, (1, 2, 5))


def test_case_1_other_keys_between() -> None:
    """`b` depends on a loop of other steps, and is independent of `a` all the same."""
    between = grow(2, steps=M, name="m")
    graph = graph_of(grow(3, between[-1], name="b"), grow(4, name="a"))
    after, _ = merged(graph)
    assert names(after) == ["a&b", "m"]
    check(graph, after)


def growing(name: str, *, limit: Any = 10.0, factor: float = 2.0, carried: str = "yz") -> Any:
    """Stop when ``y`` is beyond ``limit``; ``carried`` says in what order the states stand."""

    def step(*states):
        given = dict(zip(carried, states, strict=True))
        new = {"y": given["y"] * factor, "z": given["z"] + len(name)}
        return [new[key] for key in carried], until(given["y"] > limit)

    starts = {"y": X, "z": X - 1}
    results = scan(step, outputs_info=[starts[key] for key in carried], n_steps=N, name=name)
    return results[carried.index("z")]


def test_case_2_while_loops_with_states_in_another_order() -> None:
    graph = graph_of(growing("a"), growing("bb", carried="zy"))
    after, _ = merged(graph)
    assert names(after) == ["a&bb"]
    check(graph, after, (0, 1, 2, 3, 30))


@pytest.mark.parametrize("changed", [{"limit": 11.0}, {"limit": X}, {"factor": 3.0}])
def test_case_2_twin_other_conditions(changed: dict[str, Any]) -> None:
    """Another limit, or a state that starts equal and grows faster."""
    graph = graph_of(growing("a"), growing("b", **changed))
    _, remarks = merged(graph)
    assert remarks == ["kept b: not merged with `a`: they stop by other conditions"]


def test_case_2_twin_only_one_stops() -> None:
    _, remarks = merged(graph_of(growing("a"), grow(2, name="b")))
    assert remarks == ["kept b: not merged with `a`: only one has a stop condition"]


def test_case_2_while_loops_that_depend_on_one_another() -> None:
    ys = growing("a")
    zs = scan(lambda z: (z + 1, until(z > 3)), outputs_info=[ys[-1]], n_steps=N, name="b")
    assert names(merged(graph_of(zs))[0]) == ["a", "b"]


def _vectorised(batches: dict[Any, Any], *results: Any) -> Graph:
    return graph_of(*vectorize_graph(list(results), batches))


def test_case_3_batched_loops() -> None:
    batch = pt.dvector("batch")
    w = scan(lambda a, y: y + a, sequences=[S], outputs_info=[X], n_steps=N, name="b")
    graph = _vectorised({X: batch}, grow(2, name="a")[-1], w[-1], pt.grad(w.sum(), X))
    after, _ = merged(graph)
    assert names(after) == ["a&b", "grad_of_b"]
    assert len(list(scan_views(after.fgraph))) == 2
    check(graph, after, (1, 2, 5))


def test_case_3_twin_other_batches() -> None:
    """Two batches of their own run alone, and would not run together."""
    y = pt.dscalar("y")
    batch, other = pt.dvector("batch"), pt.dvector("other")
    loops = grow(2, name="a")[-1], grow(3, y, name="b")[-1]
    graph = _vectorised({X: batch, y: other}, *loops)
    _, remarks = merged(graph)
    told = "their batches are not shown to have one shape"
    assert remarks == [f"kept b: not merged with `a`: {told}"]
    # A third loop that runs over both shows that they are equally long.
    both = scan(lambda z, y: z * y, outputs_info=[X], non_sequences=[y], n_steps=N, name="c")[-1]
    graph = _vectorised({X: batch, y: other}, *loops, both)
    after, _ = merged(graph)
    assert names(after) == ["a&b&c"]
    check(graph, after, other=[3.0, 1.0, 2.0])


def test_case_3_twin_batches_along_other_axes() -> None:
    y = pt.dscalar("y")
    rows, columns = pt.dcol("rows"), pt.drow("columns")
    graph = _vectorised({X: rows, y: columns}, grow(2)[-1], grow(3, y)[-1])
    assert [view.batch_ndim for view in scan_views(graph.fgraph)] == [2, 2]
    after, _ = merged(graph)
    assert len(names(after)) == 2


def test_case_3_twin_batched_and_single() -> None:
    batch = pt.dvector("batch")
    graph = graph_of(vectorize_graph(grow(2)[-1], {X: batch}), grow(3)[-1])
    assert merged(graph)[1] == []


@pytest.mark.parametrize("limit", [0.5, 3.0, 1e9])
def test_case_4_trimmed_loops(limit: float) -> None:
    """Each slot keeps its own buffer, also where a while loop stops before it is full."""

    def loop(name: str, factor: float) -> Any:
        def step(y, z):
            return [y * 2, z * factor], until(y > limit)

        return scan(step, outputs_info=[X, X], n_steps=N, name=name)[1]

    graph = graph_of(loop("a", 2.0)[-1], loop("b", 3.0)[-1:], grow(2)[-1], grow(3)[-3:])
    short, _ = merged(graph, SaveMem())
    assert all(trimmed(view) for view in scan_views(short.fgraph))
    after, _ = merged(short)
    assert names(after) == ["a&b", "grow"]
    check(graph, after, (0, 1, 2, 3, 30))


def test_case_4_twin_trimmed_and_whole() -> None:
    """The steps of a merged loop's gradient would be read off the trimmed buffer."""
    graph = graph_of(grow(2, name="a")[-1], grow(3, name="b"))
    short, _ = merged(graph, SaveMem())
    _, remarks = merged(short)
    assert remarks == ["kept b: not merged with `a`: only one keeps every step"]


def test_twin_buffers_that_are_neither_shown_whole_nor_trimmed() -> None:
    start, rows = pt.dvector("start"), pt.dvector("rows")
    graph = graph_of(grow(2, name="a"), grow(3, start[0], name="b"))
    view = next(view for view in scan_views(graph.fgraph) if view.name == "b")
    graph = from_io(None, [view.op.make_node(N, rows).outputs[0], grow(2, name="a")])
    _, remarks = merged(graph)
    assert remarks == [
        "kept b: not merged with `a`: "
        "the buffers of sit_sot[0] are shown neither to be trimmed nor to be whole"
    ]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"truncate_gradient": 5}, "truncate_gradient is 5, not -1"),
        ({"profile": "p"}, "profile differs"),
        ({"allow_gc": True}, "allow_gc differs"),
    ],
)
def test_twin_other_settings(settings: dict[str, Any], told: str) -> None:
    graph = graph_of(grow(2, name="a"), grow(3, name="b", **settings))
    assert merged(graph)[1] == [f"kept b: not merged with `a`: {told}"]
    graph = graph_of(grow(2, name="a", **settings), grow(3, name="b", **settings))
    after, _ = merged(graph)
    assert names(after) == ["a&b"]
    op = only_scan(after.fgraph).op
    assert {key: getattr(op, key) for key in settings} == settings


def test_twin_other_modes() -> None:
    with pytest.warns(FutureWarning, match="mode"):
        ys = grow(3, name="b", mode="FAST_COMPILE")
    _, remarks = merged(graph_of(grow(2, name="a"), ys))
    assert remarks == ["kept b: not merged with `a`: mode differs"]


def test_twin_graph_that_works_in_place() -> None:
    """`b` needs the value that is written when `a` has read what it is written over."""
    written = pt.inc_subtensor(S[:1], 1.0, inplace=True)
    a = scan(lambda s, y: y + s, sequences=[S], outputs_info=[X], n_steps=N, name="a")
    b = scan(lambda s, y: y - s, sequences=[written], outputs_info=[X], n_steps=N, name="b")
    after, remarks = merged(graph_of(a, b))
    assert names(after) == ["a", "b"]
    assert remarks == ["kept graph: merged nothing: IncSubtensor works in place"]
    assert merged(graph_of(a, written))[1] == []


def test_twin_step_that_works_in_place() -> None:
    def step(y):
        return pt.inc_subtensor(pt.zeros(3)[:1], y, inplace=True).sum()

    graph = graph_of(grow(2, name="a"), scan(step, outputs_info=[X], n_steps=N, name="b"))
    assert merged(graph)[1] == ["kept b: not merged with `a`: a step works in place"]


def test_twin_loop_that_a_branch_can_do_without() -> None:
    """Merged with a loop that always runs, it would always run too, and raise."""
    c = pt.bscalar("c")
    bad = scan(lambda y: Assert("no")(y, pt.lt(y, 0)), outputs_info=[X], n_steps=N, name="bad")
    a, b = grow(2, name="a"), grow(3, name="b")
    graph = graph_of(IfElse(1)(c, a[-1], bad[-1]), b[-1])
    after, remarks = merged(graph)
    assert names(after) == ["a", "b", "bad"]
    told = "a branch of an IfElse decides whether it runs"
    assert remarks == [f"kept a: not merged with `b`: {told}"]
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
    assert remarks == ["changed outer/a: merged with `b`"]
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
    assert remarks == ["changed layer/grow#1: merged with `grow#2`"]
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
    told = "`loop2`, `loop3`, `loop4`, `loop5` and 4 others"
    assert remarks == [f"changed loop1: merged with {told}"]


def test_no_more_remarks_than_loops() -> None:
    loops = [grow(k, name=f"loop{k}", truncate_gradient=k % 20 + 1) for k in range(1, 41)]
    _, remarks = merged(graph_of(*loops))
    kept = [remark for remark in remarks if remark.startswith("kept")]
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


def test_work_grows_with_the_graph(counted: dict[str, int]) -> None:
    def looked(count: int) -> int:
        counted["nodes"] = 0
        after, _ = merged(_chains(count))
        assert len(names(after)) == 2 * count
        return counted["nodes"]

    assert looked(40) < 2.5 * looked(20)


@settings(max_examples=15)
@given(generated=scan_graphs())
def test_a_graph_and_its_twin_with_other_values(generated: GeneratedScan) -> None:
    """Every loop of a graph has a counterpart that it can be merged with, if it stops alike."""
    inputs, outputs = build(generated.program)
    twin = {
        other: own * 0.5 if "float" in own.type.dtype else own
        for own, other in zip(generated.inputs, inputs, strict=True)
    }
    graph = from_io(generated.inputs, [*generated.outputs, *clone_replace(outputs, twin)])
    after, remarks = merged(graph)
    note("\n".join(remarks))
    after.fgraph.check_integrity()
    both = [evaluator(part.inputs, part.outputs) for part in (graph, after)]
    for given_arguments in generated.arguments:
        assert_same_outcomes(*(evaluate_one(given_arguments) for evaluate_one in both))
    assert not any(remark.startswith("changed") for remark in merged(after)[1])
