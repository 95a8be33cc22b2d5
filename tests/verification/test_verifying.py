"""Two graphs, one verdict."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytensor.xtensor as px
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.raise_op import Assert
from pytensor.tensor.elemwise import CAReduce, Elemwise

from scanopt_cli.errors import ScanoptError, VerificationError
from scanopt_cli.ir.graph import Graph, as_graph, from_io
from scanopt_cli.reports.verify_report import notes
from scanopt_cli.verification.result import (
    CompilationTimes,
    DifferenceKind,
    Verdict,
    VerificationTimes,
)
from scanopt_cli.verification.verifying import verify
from support.tiers import deep

pytestmark = pytest.mark.usefixtures("evaluated_here")

x, y = pt.vectors("x", "y")
h0 = pt.scalar("h0")
n, m = pt.iscalars("n", "m")


def loop(steps: Variable) -> Variable:
    return pytensor.scan(
        lambda h: pt.tanh(h * 0.9) + 0.1, outputs_info=[h0], n_steps=steps, return_updates=False
    )


def test_the_same_graph_is_identical() -> None:
    found = verify(([x], [pt.sin(x)]), ([x], [pt.sin(x)]))
    assert (found.verdict, found.runs, found.runs_tried, found.ok) == ("identical", 5, 5, True)
    assert found.differences == ()


def test_each_compilation_of_each_graph_is_timed_and_so_are_its_calls() -> None:
    found = verify(([x], [pt.sin(x)]), ([x], [pt.sin(x) * 1]), modes="vm")
    assert found.times is not None
    told = {(one.graph, one.mode): one for one in found.times.compilations}
    # The second graph is compiled by the mode; the first one only where they differ then.
    assert list(told) == [("a", "plain"), ("b", "plain"), ("b", "vm")]
    for one in told.values():
        assert one.compiling > 0
        assert one.first_call > 0
        assert one.later_calls > 0
        assert one.calls >= found.runs
    assert found.times.compiling + found.times.running < found.times.seconds
    assert found == dataclasses.replace(found, times=None)


def test_times_of_several_verifications_are_added_up() -> None:
    one = CompilationTimes(
        graph="b", mode="vm", compiling=1.0, first_call=2.0, later_calls=3.0, calls=4
    )
    other = dataclasses.replace(one, graph="a")
    twice = VerificationTimes.joined(
        [
            VerificationTimes(seconds=10.0, compilations=(one,)),
            VerificationTimes(seconds=20.0, compilations=(one, other)),
        ]
    )
    assert twice.seconds == 30.0
    assert (twice.compiling, twice.running) == (9.0, 9.0)
    assert [(each.graph, each.calls) for each in twice.compilations] == [("b", 8), ("a", 4)]


def test_another_formula_with_the_same_bits_is_identical() -> None:
    assert verify(([x], [x * 2]), ([x], [x + x])).verdict is Verdict.IDENTICAL


def test_rounding_agrees() -> None:
    left, right = (x + y) + 0.1, x + (y + 0.1)
    found = verify(([x, y], [left]), ([x, y], [right]), runs=10)
    assert (found.verdict, found.runs) == (Verdict.AGREES, 10)


def test_a_deviation_is_located_and_measured() -> None:
    wrong = pt.set_subtensor(x[1:2], x[1:2] + 1e-3)
    found = verify(([x], [x * 1, x]), ([x], [x * 1, wrong]), runs=1)
    (difference,) = found.differences
    assert found.verdict is Verdict.DIFFERS
    assert (found.runs, difference.run, difference.output) == (0, 0, 1)
    assert (difference.kind, difference.where, difference.elements) == ("values", (1,), 1)
    assert float(difference.b) - float(difference.a) == pytest.approx(1e-3)
    assert difference.abs_error == pytest.approx(1e-3)
    assert difference.rel_error == pytest.approx(
        1e-3 / max(abs(float(difference.a)), abs(float(difference.b)))
    )


def test_the_report_is_plain_data() -> None:
    n_rng = pt.random.type.random_generator_type("rng")
    draw = pt.random.normal(rng=n_rng, size=(2,), return_next_rng=True)
    found = verify(([n_rng, x], [draw[0], x]), ([n_rng, x], [n_rng, x > 0]))
    assert {d.kind for d in found.differences} == {"state", "dtype"}
    again = json.loads(json.dumps(dataclasses.asdict(found), allow_nan=False))
    assert again["verdict"] == "differs"


def test_shapes_and_dtypes_count() -> None:
    shape = verify(([x], [x]), ([x], [x[:1]])).differences[0]
    assert (shape.kind, shape.b) == (DifferenceKind.SHAPE, "(1,)")
    dtype = verify(([x], [x]), ([x], [x.astype("float32")])).differences[0]
    assert (dtype.kind, dtype.a, dtype.b) == (DifferenceKind.DTYPE, "float64", "float32")


def test_only_one_raises() -> None:
    checked = Assert("too small")(x, pt.gt(x.sum(), 1e9))
    found = verify(([x], [x]), ([x], [checked]), runs=2)
    assert found.verdict is Verdict.DIFFERS
    assert [d.kind for d in found.differences] == [DifferenceKind.ONLY_B_RAISES] * 2
    assert found.differences[0].b == "AssertionError: too small"
    back = verify(([x], [checked]), ([x], [x]), runs=1, strict=True)
    assert [d.kind for d in back.differences] == [DifferenceKind.ONLY_A_RAISES]


def test_an_index_error_that_one_graph_lost_is_told_and_on_request_a_difference() -> None:
    xs = loop(n)
    with_start = pt.concatenate([h0[None], xs])
    found = verify(([n, h0], [xs[-1]]), ([n, h0], [with_start[-1]]))
    assert (found.verdict, found.runs) == (Verdict.IDENTICAL, 4)
    assert found.reason is not None
    assert "in the rest the first graph raises IndexError" in found.reason
    strict = verify(([n, h0], [xs[-1]]), ([n, h0], [with_start[-1]]), strict=True)
    (difference,) = strict.differences
    assert (difference.kind, difference.arguments) == ("only_a_raises", "random, 0 steps")


def test_nothing_is_verified_if_both_raise() -> None:
    never = Assert("no")(x, pt.gt(0, 1))
    found = verify(([x], [never]), ([x], [never]))
    assert (found.verdict, found.runs, found.runs_tried) == (Verdict.COULD_NOT_RUN, 0, 5)
    assert found.reason is not None
    assert "AssertionError: no" in found.reason


def test_nothing_is_verified_if_all_is_nan() -> None:
    nothing = pt.sqrt(-1 - x**2)
    found = verify(([x], [nothing]), ([x], [nothing]))
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert found.reason == "no run gave a finite number to compare"


def test_arrays_that_happen_to_be_empty_are_not_compared() -> None:
    first, second = x[1000:], x[1000:] * 2
    found = verify(([x], [first]), ([x], [second]), modes="plain")
    assert found.verdict is Verdict.COULD_NOT_RUN
    found = verify(([x], [x.sum(), first]), ([x], [x.sum(), second]), modes="plain")
    assert found.verdict is Verdict.IDENTICAL
    assert found.remarks == (
        "output 1 was empty, NaN or infinite in every run, so no number was compared",
    )


def test_arrays_that_are_always_empty_agree() -> None:
    nothing = x[:0] * 2
    assert verify(([x], [nothing]), ([x], [nothing + 1])).verdict is Verdict.IDENTICAL
    assert not verify(([x], [nothing]), ([x], [nothing.astype("float32")])).ok


def test_numbers_are_found_where_a_graph_has_some() -> None:
    matrix = pt.matrix("matrix")
    outputs = [pt.log(x).sum(), pt.linalg.cholesky(matrix)[0, 0]]
    found = verify(([x, matrix], outputs), ([x, matrix], outputs))
    assert found.verdict is Verdict.IDENTICAL


@pytest.mark.parametrize("steps", [0, 1])
def test_a_difference_at_one_step_count_only(steps: int) -> None:
    total = loop(n).sum()
    found = verify(([n, h0], [total]), ([n, h0], [total + pt.eq(n, steps)]))
    assert [d.arguments for d in found.differences] == [
        f"random, {steps} step{'' if steps == 1 else 's'}"
    ]


def test_a_difference_at_many_steps_only() -> None:
    total = loop(n).sum()
    found = verify(([n, h0], [total]), ([n, h0], [total + pt.gt(n, 2)]))
    assert found.verdict is Verdict.DIFFERS
    assert found.differences[0].arguments == "random"


@pytest.mark.parametrize("length", [0, 1])
def test_step_counts_that_come_from_a_sequence(length: int) -> None:
    ys = pytensor.scan(
        lambda a, b: a * b.sum(), sequences=[x], non_sequences=[y], return_updates=False
    )
    wrong = ys.sum() + pt.eq(x.shape[0], length)
    assert not verify(([x, y], [ys.sum()]), ([x, y], [wrong])).ok


@pytest.mark.parametrize("steps", [0, 1])
def test_step_counts_of_nested_loops(steps: int) -> None:
    def outer(h: Variable, inner_steps: Variable) -> Variable:
        inner = pytensor.scan(
            lambda k: k * 0.5, outputs_info=[h], n_steps=inner_steps, return_updates=False
        )
        return h + inner.sum()

    total = pytensor.scan(
        outer, outputs_info=[h0], non_sequences=[m], n_steps=3, return_updates=False
    )[-1]
    found = verify(([m, h0], [total]), ([m, h0], [total + pt.eq(m, steps)]))
    assert [d.run for d in found.differences] == [1 + steps]


def test_a_difference_for_nan_only() -> None:
    ignoring = pt.max(pt.switch(pt.isnan(x), -np.inf, x))
    found = verify(([x], [pt.max(x)]), ([x], [ignoring]))
    (difference,) = found.differences
    assert (difference.a, difference.abs_error) == ("nan", None)
    assert "NaN" in difference.arguments


def test_a_difference_in_sign_only() -> None:
    assert not verify(([x], [x]), ([x], [abs(x)]), runs=1).ok


def test_recorded_calls_come_first() -> None:
    graph = as_graph(([x], [x]))
    recorded = Graph(fgraph=graph.fgraph, recorded=((np.array([7.0, 8.0]),),))
    trap = pt.switch(pt.eq(x, 8.0), 0.0, x)
    for pair in ((recorded, ([x], [trap])), (([x], [trap]), recorded)):
        found = verify(*pair, runs=2)
        (difference,) = found.differences
        assert (difference.run, difference.arguments) == (0, "recorded call 1")
        assert (difference.where, {difference.a, difference.b}) == ((1,), {"8.0", "0.0"})
        assert (found.runs, found.runs_tried) == (2, 3)


def test_random_runs_take_the_shapes_of_a_recorded_call() -> None:
    """All parameters of a model are one vector, of which parts are taken by number."""
    joined = pt.vector("joined")
    total = (joined[:78].reshape((78,)) * joined[78]).sum()
    graph = as_graph(([joined], [total]))
    graph = dataclasses.replace(graph, recorded=((np.linspace(0.5, 1.5, 81),),))
    found = verify(graph, ([joined], [total * 1]), modes="plain")
    assert (found.runs, found.runs_tried) == (6, 6)
    wrong = verify(graph, ([joined], [total * pt.ge(joined[80], 1.0)]), modes="plain")
    assert "random, of recorded shapes" in {item.arguments for item in wrong.differences}


def test_an_error_in_a_recorded_call_is_not_blamed_on_the_arguments() -> None:
    graph = as_graph(([x], [x[5]]))
    recorded = Graph(fgraph=graph.fgraph, recorded=((np.zeros(2),),))
    found = verify(recorded, ([x], [x.sum()]), runs=1, strict=True)
    assert found.differences[0].kind is DifferenceKind.ONLY_A_RAISES


def test_contents_of_shared_variables_are_kept_and_varied() -> None:
    data = pytensor.shared(np.array([1.0, 2.0, 3.0]), name="data")
    total = (x * data).sum()
    graph = from_io([x], [total])
    assert verify(graph, graph).ok

    only_there = from_io([x], [total + pt.eq(data.sum(), 6.0)])
    assert [d.run for d in verify(graph, only_there, runs=3).differences] == [0]
    only_elsewhere = from_io([x], [total + pt.neq(data.sum(), 6.0)])
    assert [d.run for d in verify(graph, only_elsewhere, runs=3).differences] == [1, 2]


def test_random_generators() -> None:
    rng = pt.random.type.random_generator_type("rng")
    following, draw = pt.random.normal(rng=rng, size=(n,), return_next_rng=True)
    assert verify(([rng, n], [following, draw]), ([rng, n], [following, draw])).ok
    longer, _ = pt.random.normal(rng=rng, size=(n + 1,), return_next_rng=True)
    found = verify(([rng, n], [following, draw]), ([rng, n], [longer, draw]))
    assert {(d.kind, d.output) for d in found.differences} == {("state", 0)}


def test_all_kinds_of_inputs() -> None:
    z = pt.zvector("z")
    byte, unsigned = pt.bvector("byte"), pt.scalar("unsigned", dtype="uint16")
    flag = pt.tensor("flag", dtype="bool", shape=(2, 3))
    narrow = pt.tensor("narrow", dtype="float32", shape=(None, 2))
    inputs = [z, byte, unsigned, flag, narrow]
    outputs = [z.imag + z.real, byte + unsigned, pt.invert(flag), narrow @ flag.astype("float32")]
    assert verify((inputs, outputs), (inputs, outputs)).verdict is Verdict.IDENTICAL
    for place, wrong in enumerate([z.real, byte, flag, narrow @ pt.ones((2, 3), "float32")]):
        changed = [*outputs[:place], wrong, *outputs[place + 1 :]]
        found = verify((inputs, outputs), (inputs, changed))
        assert {d.output for d in found.differences} == {place}


def test_products_get_matrices_that_fit_and_are_not_square() -> None:
    a, b, c = pt.matrices("a", "b", "c")
    product = a @ (b @ (c @ x))
    assert verify(([a, b, c, x], [product]), ([a, b, c, x], [((a @ b) @ c) @ x])).ok
    wrong = product * b.shape[0] / b.shape[1]
    assert not verify(([a, b, c, x], [product]), ([a, b, c, x], [wrong])).ok


def test_sizes_that_the_graph_does_not_tell_are_searched() -> None:
    pairs = x.reshape((-1, y.shape[0])) + y
    found = verify(([x, y], [pairs]), ([x, y], [pairs]), runs=2)
    assert (found.verdict, found.runs) == (Verdict.IDENTICAL, 2)


@pytest.mark.parametrize("mode", ["vm", *deep("numba")])
def test_modes_evaluate_loops(mode: str) -> None:
    xs = loop(n)
    outputs = [xs, pt.grad(xs.sum(), h0)]
    same = verify(([n, h0], outputs), ([n, h0], outputs), modes=mode, runs=3)
    assert same.verdict is Verdict.IDENTICAL
    other = verify(([n, h0], outputs), ([n, h0], [xs, outputs[1] + 1e-6]), modes=mode, runs=3)
    assert {d.output for d in other.differences} == {1}


def test_without_a_compiler_cvm_cannot_run() -> None:
    found = verify(([x], [x]), ([x], [x]), modes="cvm")
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert "C++ compiler" in str(found.reason)


def test_what_was_compiled_for_c_is_not_run_without() -> None:
    a, b = ps.float64("a"), ps.float64("b")
    summed = CAReduce(ps.Composite([a, b], [ps.add(a, ps.sqr(b))]))
    graph = ([x], [summed(x)])
    found = verify(([x], [(x**2).sum()]), graph)
    assert (found.verdict, found.reason) == (
        Verdict.COULD_NOT_RUN,
        "a graph was compiled for C, and needs it; use --mode cvm",
    )


def test_graphs_that_work_in_place_keep_their_arguments() -> None:
    xs = loop(n)
    optimized = pytensor.function([n, h0], xs[-3:], mode=Mode("vm", "fast_run")).maker.fgraph
    assert any(node.op.destroy_map for node in optimized.apply_nodes)
    assert verify(([n, h0], [xs[-3:]]), optimized).ok

    destroying = Elemwise(ps.add, {0: 0})(x, y)
    assert verify(([x, y], [x + y, x.sum()]), ([x, y], [destroying, x.sum()])).ok


@pytest.mark.deep
def test_deep_graphs() -> None:
    deep: Variable = x
    for step in range(3000):
        deep = pt.sin(deep) if step % 2 else deep + 1.0
    assert verify(([x], [deep]), ([x], [deep])).verdict is Verdict.IDENTICAL


def test_inputs_correspond_by_name_where_positions_do_not_fit() -> None:
    assert verify(([x, n], [x * n]), ([n, x], [x * n])).ok
    assert verify(([x, y, n], [x * n]), ([n, x], [x * n])).ok
    assert not verify(([x, y, n], [x * n]), ([n, x], [x * n + 1])).ok


def test_inputs_that_correspond_by_name_are_told() -> None:
    def told(*graphs):
        result = verify(*graphs, modes="plain")
        return result.remarks, notes(result)

    assert told(([x, n], [x * n]), ([x, n], [x * n])) == ((), [])
    note = "inputs are paired by name; the first graph alone has y"
    assert told(([x, y, n], [x * n]), ([n, x], [x * n])) == ((note,), [f"note: {note}"])
    assert told(([n, x], [x * n]), ([x, n], [x * n]))[0] == ("inputs are paired by name",)


def test_numbers_as_small_as_rounding_errors_settle_nothing() -> None:
    """Of probabilities as small as this, a third may be a rounding error of larger numbers."""
    tiny = (1e-16 * pt.tanh(x)).sum()
    result = verify(([x], [tiny]), ([x], [3 * tiny]), modes="plain")
    assert result.verdict is Verdict.COULD_NOT_RUN
    assert "so small" in (result.reason or "")
    assert verify(([x], [tiny]), ([x], [tiny]), modes="plain").verdict is Verdict.IDENTICAL
    beside = verify(([x], [x.sum(), tiny]), ([x], [x.sum(), 3 * tiny]), modes="plain")
    assert beside.verdict is Verdict.AGREES
    assert beside.remarks == (
        "output 1 holds nothing larger than rounding errors, so it was not compared",
    )


def test_names_of_dimensions_are_part_of_the_signature() -> None:
    values = px.as_xtensor(pt.dmatrix("m"), dims=("p", "q"))
    turned = px.as_xtensor(pt.dmatrix("m"), dims=("q", "p"))
    graphs = [([v.owner.inputs[0]], [v + 1]) for v in (values, turned)]
    with pytest.raises(VerificationError, match="output 0 has the dimensions p, q against q, p"):
        verify(*graphs, modes="plain")


def test_signatures_that_do_not_match() -> None:
    unnamed = pt.vector()
    with pytest.raises(VerificationError, match=r"x: Vector.*n: Scalar.*against.*\?: Vector"):
        verify(([x, n], [x * n]), ([unnamed], [unnamed * 2]))
    with pytest.raises(VerificationError, match=r"-> 1 output against .* -> 2 outputs"):
        verify(([x], [x]), ([x], [x, x]))
    with pytest.raises(VerificationError, match="different signatures"):
        verify(([x], [x * 1.0]), ([n], [n * 1.0]))


def test_options_out_of_range() -> None:
    with pytest.raises(VerificationError, match="runs must be at least 1"):
        verify(([x], [x]), ([x], [x]), runs=0)
    with pytest.raises(VerificationError, match="there is no mode 'fast'"):
        verify(([x], [x]), ([x], [x]), modes="vm,fast")
    with pytest.raises(ScanoptError, match="expected a graph"):
        verify(3, ([x], [x]))


def test_the_seed_decides_the_arguments() -> None:
    def values(seed: int) -> list[str]:
        return [d.a for d in verify(([x], [x]), ([x], [x + 1]), seed=seed).differences]

    assert values(0) == values(0) != values(1)


def test_the_arguments_are_left_alone() -> None:
    graph = as_graph(([x], [pt.exp(x)]))
    before = graph.fgraph.toposort()
    verify(graph, graph, runs=1)
    assert graph.fgraph.toposort() == before
