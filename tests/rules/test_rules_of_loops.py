"""What rules say of loops is so: in JAX, in Numba, and in what PyTensor compiles."""

from __future__ import annotations

import warnings
from time import thread_time
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.replace import vectorize_graph

import scanopt_cli as so
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.named_loops import named_loops
from scanopt_cli.analysis.step_costs import step_cost
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.rules import last_of_no_steps
from scanopt_cli.rules.compiled_loops import CompiledLoop, Numbers, rows_kept, scans_in
from scanopt_cli.rules.finding_costs import time_text
from scanopt_cli.rules.graph_checking import check
from scanopt_cli.rules.rule_registry import rules
from support.graph_building import graph_of, scan
from support.seeded_loops import MORE_VALUES, SEEDED_LOOPS, Graph, N, traced
from support.tiers import IS_DEEP, deep

VALUES: dict[str, Any] = {"v": np.array(0.7), "n": np.array(4), **MORE_VALUES}


def run(graph: Graph, mode: str) -> list[Any]:
    inputs, outputs = graph
    with so.enabled():
        function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    return function(*(VALUES[v.name] for v in inputs))


@pytest.mark.jax
@pytest.mark.parametrize(
    "name", [name for name, (code, *_) in SEEDED_LOOPS.items() if code == "J001"]
)
def test_jax_runs_the_twin_alone(name: str) -> None:
    pytest.importorskip("jax")
    _, seeded, twin = SEEDED_LOOPS[name]
    with pytest.raises(NotImplementedError, match="JAX cannot trace"):
        run(seeded(), "JAX")
    for one, other in zip(run(twin(), "JAX"), run(twin(), "FAST_COMPILE"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_what_few_care_for_is_looked_for_if_it_is_selected() -> None:
    graph = traced(steps=N)
    assert "J001" not in {finding.code for finding in check(graph).findings}
    assert {finding.code for finding in check(graph, select=["J"]).findings} == {"J001"}
    assert not check(graph, select=["J"], ignore=["J001"]).findings


def is_on_numbers(graph: Graph) -> bool:
    """Whether a step can be written on numbers: where it is not, its arrays are in registers."""
    passes = PRESETS["loop"].replace("unroll-small", "unroll-small{always=true}")
    (loop,) = named_loops(so.optimize(graph, passes).graph.fgraph)
    return not step_cost(loop.view).arrays


def test_shapes_that_are_named_let_a_loop_run_on_numbers() -> None:
    _, seeded, _ = SEEDED_LOOPS["unknown shapes"]
    inputs, outputs = seeded()
    (finding,) = check((inputs, outputs), select=["P009"]).findings
    assert "`a` and `b` a static shape, as pt.tensor('a', shape=(3, 3))" in finding.text
    assert not is_on_numbers((inputs, outputs))
    known = [v.type.clone(shape=(3, 3))(name=v.name) for v in inputs]
    given = dict(zip(inputs, known, strict=True))
    assert is_on_numbers(
        (known, pytensor.graph.clone_replace(outputs, given, rebuild_strict=False))
    )


def test_shapes_that_are_tried_fit_those_that_are_known() -> None:
    two = pt.tensor("two", shape=(2,), dtype="float64")
    a = pt.dmatrix("a")
    ys = scan(
        lambda s, a, v: pt.tanh(a @ s + v),
        outputs_info=[two],
        non_sequences=[a, two * 2],
        n_steps=3,
    )
    (finding,) = check(([two, a], [ys]), select=["P009"]).findings
    assert "give `a` a static shape, as pt.tensor('a', shape=(2, 2))" in finding.text


def test_numba_calls_python_as_it_is_said() -> None:
    _, seeded, twin = SEEDED_LOOPS["a call of Python"]
    inputs, outputs = seeded()
    with pytest.warns(UserWarning, match="object mode"):
        pytensor.function(inputs, outputs, mode="NUMBA")
    inputs, outputs = twin()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pytensor.function(inputs, outputs, mode="NUMBA")


def test_default_rules_are_all_but_those_for_some() -> None:
    assert {code for code, rule in rules().items() if not rule.is_default} == {"J001"}


def rows_compiled(graph: Graph) -> int | None:
    """Return the rows that Scans keep in what PyTensor makes of a graph for Numba; it runs, too."""
    inputs, outputs = graph
    function = pytensor.function(inputs, outputs, mode="NUMBA", on_unused_input="ignore")
    function(*(VALUES[v.name] for v in inputs))
    return rows_kept(scans_in(function.maker.fgraph))


@pytest.mark.parametrize(
    ("name", "rows"), deep(("rows from the end", 4), ("a row that is the last", 2))
)
def test_pytensor_keeps_whole_traces_and_not_those_of_the_twin(name: str, rows: int) -> None:
    _, seeded, twin = SEEDED_LOOPS[name]
    assert rows_compiled(seeded()) == 1001
    assert rows_compiled(twin()) <= rows
    (finding,) = check(seeded(), select=["P005"]).findings
    assert finding.fix is not None
    mended = so.optimize(seeded(), finding.fix.passes).graph
    assert rows_compiled((mended.inputs, mended.outputs)) <= rows


def test_why_a_whole_trace_is_kept_is_said() -> None:
    _, seeded, _ = SEEDED_LOOPS["the first row of no steps"]
    (finding,) = check(seeded(), select=["P005"]).findings
    assert finding.text.endswith("only the ends are read: there may be no step")
    assert finding.cost == "8*n+8 bytes"
    assert finding.fix is None


def filling(reading: Any, n: Any) -> Graph:
    """Fill an array of n rows in n steps."""
    x = pt.dvector("x")

    def step(i: Any, rows: Any) -> Any:
        return pt.set_subtensor(rows[i], pt.sin(rows[i - 1]) + 1)

    return [x, n], [reading(scan(step, sequences=[pt.arange(n)], outputs_info=[x], n_steps=n))]


@pytest.mark.tiered
def test_a_trace_that_is_read_at_its_last_step_alone_is_written_in_place() -> None:
    """The fix lets PyTensor see that, and then it copies nothing."""
    graph = filling(lambda rows: rows[N - 1], N)
    (finding,) = check(graph, select=["P008"]).findings
    assert finding.fix is not None
    mended = so.optimize(graph, finding.fix.passes).graph
    assert not check(mended, select=["P008"]).findings
    for mode in ("FAST_COMPILE", "NUMBA") if IS_DEEP else ("FAST_COMPILE",):
        values = [
            pytensor.function(inputs, outputs, mode=mode)(np.linspace(0, 1, 100), 100)
            for inputs, outputs in (graph, (mended.inputs, mended.outputs))
        ]
        np.testing.assert_array_equal(*values)


def seconds(graph: Graph, n: int) -> float:
    function = pytensor.function(*graph, mode="NUMBA")
    x = np.linspace(0, 1, n)
    function(x, n)
    times = []
    for _ in range(5):
        start = thread_time()
        function(x, n)
        times.append(thread_time() - start)
    return min(times)


def test_an_expression_for_the_rows_is_computed_once_though_it_is_read_twice() -> None:
    steps: Any = N
    for _ in range(40):
        steps = steps + steps
    rows: Any = scan(lambda: pt.constant(1.0), n_steps=steps)
    graph = as_graph(([N], [rows]))
    assert rows_kept(scans_in(graph.fgraph)) == 1000 * 2**40


@pytest.mark.deep
def test_copies_take_time_that_grows_with_the_square() -> None:
    copying, in_place = (lambda rows: rows[-2:]), (lambda rows: rows[-1])
    assert check(filling(copying, N), select=["P008"]).findings
    assert not check(filling(in_place, N), select=["P008"]).findings
    growth = [
        seconds(filling(reading, N), 8000) / seconds(filling(reading, N), 2000)
        for reading in (copying, in_place)
    ]
    assert growth[0] > 8 > growth[1]


def derived(order: int, passes: str | None = None) -> Any:
    x, p = pt.dscalars("x", "p")
    ys = scan(lambda s, p: pt.sin(s * p), outputs_info=[x], non_sequences=[p], n_steps=50)
    cost = ys[-1]
    for _ in range(order):
        cost = pt.grad(cost, p)
    graph = [x, p], [cost]
    return graph if passes is None else so.optimize(graph, passes).graph


def test_derivatives_of_many_loops_are_found() -> None:
    texts = [f.text for f in check(derived(2), select=["P007"]).findings]
    (found,) = (text for text in texts if "order" in text)
    assert found.startswith(
        "4 loops for a derivative of order 2: tangents of one gradient take two"
    )


@pytest.mark.parametrize("order", [0, 1])
def test_twin_first_derivatives_have_two_loops(order: int) -> None:
    assert not [f for f in check(derived(order), select=["P007"]).findings if "order" in f.text]


def test_twin_tangents_of_one_gradient_have_two_loops() -> None:
    graph = so.grad(derived(0), wrt=["p"], order=2, strategy="forward-over-reverse").graph
    assert not [f for f in check(graph, select=["P007"]).findings if "order" in f.text]


def test_costs_say_how_much_and_about_how_long() -> None:
    _, seeded, _ = SEEDED_LOOPS["a small array"]
    (finding,) = check(seeded(), select=["P010"]).findings
    assert finding.cost == "6 operations a step, about 0.3 µs a call"
    _, seeded, _ = SEEDED_LOOPS["products of rows"]
    (finding,) = check(seeded(), select=["P003"]).findings
    assert finding.cost == "b.shape[0]*b.shape[1] operations a step"
    assert finding.slots == ("a",)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(3.4, "3 ns"), (340, "0.3 µs"), (5e4, "50 µs"), (2e6, "2 ms"), (3e9, "3 s")],
)
def test_times_have_one_digit(nanoseconds: float, text: str) -> None:
    assert time_text(nanoseconds) == f"about {text} a call"


def test_constants_that_pytensor_computes_are_no_product() -> None:
    s, m = pt.dvector("s"), pt.dmatrix("m")

    def steps(matrix: Any) -> Graph:
        ys = scan(
            lambda h, m: pt.tanh((m @ pt.exp(m)) @ h),
            outputs_info=[s],
            non_sequences=[matrix],
            n_steps=4,
        )
        return [s, m], [ys]

    assert not check(steps(pt.constant(np.eye(3))), select=["P003"]).findings
    (finding,) = check(steps(m), select=["P003"]).findings
    assert finding.severity == "note"  # out of this loop PyTensor moves it as well
    assert "PyTensor moves it when it compiles" in finding.text


def test_an_invariant_product_in_a_loop_in_a_loop_is_a_warning() -> None:
    s, m = pt.dvector("s"), pt.dmatrix("m")

    def rows(h: Any, m: Any) -> Any:
        inner = scan(
            lambda g, m: pt.tanh((m @ pt.exp(m)) @ g),
            outputs_info=[h],
            non_sequences=[m],
            n_steps=2,
        )
        return inner[-1]

    ys = scan(rows, outputs_info=[s], non_sequences=[m], n_steps=4)
    findings = check(([s, m], [ys]), select=["P003"]).findings
    assert [finding.severity for finding in findings] == ["warning"]


def test_a_body_that_pytensor_cannot_hold_is_not_tried() -> None:
    """Its numbers are 0.0 and -0.0, which PyTensor takes for one."""
    v, zeros = pt.tensor("v", shape=(3,), dtype="float64"), np.array([[0.0, -0.0, 1.0]] * 3)
    found = scan(lambda h: pt.as_tensor(zeros) @ h, outputs_info=[v], n_steps=N)
    assert [each.code for each in check(([v, N], [found[-1]])).findings] == ["C002"]


def test_a_loop_is_compared_with_the_writes_that_depend_on_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of many loops, each with its gradient, no loop is compared with the gradients of others."""
    asked, writes_last = [], last_of_no_steps._writes_last

    def noting(node: Apply, lengths: Lengths) -> bool:
        asked.append(node)
        return writes_last(node, lengths)

    monkeypatch.setattr(last_of_no_steps, "_writes_last", noting)
    many = 6
    starts = [pt.dscalar() for _ in range(many)]
    outputs = []
    for start in starts:
        ys = scan(lambda s, h: pt.sin(h * s), sequences=[pt.dvector()], outputs_info=[start])
        outputs.append(pt.grad(ys[-1], start))
    assert check(graph_of(*outputs), select=["C002"]).findings == ()
    assert many <= len(asked) <= 2 * many


def test_rows_of_a_batch_that_is_no_one_number() -> None:
    x, many = pt.dvector("x"), pt.dmatrix("X")
    rows = scan(lambda a: pt.exp(a), sequences=[x], n_steps=3)
    view = next(loop.view for loop in named_loops(as_graph(([x], [rows])).fgraph))
    assert isinstance(view, ScanView)
    (slot,) = view.of_kind(SlotKind.NIT_SOT)
    slot.outer_input = pt.constant([3, 3])
    assert rows_kept([CompiledLoop(view, Numbers())]) is None
    batch = vectorize_graph(rows[1:], {x: many})
    check(([many], [batch]), select=["P005"])
