"""merge-scans: its legal cases by number, and twins of each that must not fire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.analysis.buffers import trimmed
from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.passes.of_scans.save_mem.save_mem import SaveMem
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import arguments, graph_of, labels, only_scan, scan, scan_views
from support.merging_scans import VALUES, M, N, S, T, X, check, grow, merged, names


@pytest.mark.parametrize("steps", [N, 4, M + N])
def test_case_1_equal_steps(steps: Any) -> None:
    graph = graph_of(grow(2, steps=steps, name="a"), grow(3, steps=steps, name="b")[-1])
    after, remarks = merged(graph)
    assert names(after) == ["a&b"]
    assert remarks == ["passed a: merged with `b`"]
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
    assert all(remark.startswith("passed") for remark in remarks)
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
    assert remarks == ["missed b: not merged with `a`: their stop conditions differ"]


def test_case_2_twin_only_one_stops() -> None:
    _, remarks = merged(graph_of(growing("a"), grow(2, name="b")))
    assert remarks == ["missed b: not merged with `a`: only one has a stop condition"]


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
    told = "their batches are not proved to have one shape"
    assert remarks == [f"missed b: not merged with `a`: {told}"]
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
    assert remarks == ["missed b: not merged with `a`: only one has trimmed buffers"]


def test_twin_buffers_that_are_neither_shown_whole_nor_trimmed() -> None:
    start, rows = pt.dvector("start"), pt.dvector("rows")
    graph = graph_of(grow(2, name="a"), grow(3, start[0], name="b"))
    view = next(view for view in scan_views(graph.fgraph) if view.name == "b")
    graph = from_io(None, [view.op.make_node(N, rows).outputs[0], grow(2, name="a")])
    _, remarks = merged(graph)
    assert remarks == [
        "missed b: not merged with `a`: "
        "the buffers of sit_sot[0] are proved neither to be trimmed nor to be whole"
    ]
