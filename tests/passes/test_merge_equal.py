"""`merge-equal`: afterwards, equal variables are one variable."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.op import Op
from pytensor.scan.utils import until

from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.remarks import Code
from scanopt_cli.reports.headline import headline
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import arguments, graph_of, only_scan, optimized, scan, scan_views


def _merged(graph: Graph, **values: Any) -> tuple[FunctionGraph, list[str]]:
    work, remarks = optimized(graph, "merge-equal")
    if values:
        data = arguments(graph, **values)
        assert_same_outcomes(
            evaluate(graph.inputs, graph.outputs, data),
            evaluate(work.inputs, work.outputs, data),
            rtol=0,
        )
    return work.fgraph, remarks


def test_case_1_operands_in_another_order() -> None:
    x, y = pt.dvectors("x", "y")
    fgraph, remarks = _merged(
        from_io([x, y], [pt.exp(x + y) * 2, pt.exp(y + x) - 1]), x=[1.0], y=[2.0]
    )
    assert Counter(str(node.op) for node in fgraph.apply_nodes)["Add"] == 1
    assert remarks == ["passed graph: merged 2 nodes with equal ones"]


def test_case_1_loops_that_list_their_states_otherwise() -> None:
    x, y = pt.dscalars("x", "y")
    a, b = scan(lambda p, q: [p * 2 + q, q - 1], outputs_info=[x, y], n_steps=3, name="first")
    d, c = scan(lambda q, p: [q - 1, q + 2 * p], outputs_info=[y, x], n_steps=3, name="second")
    graph = from_io([x, y], [a[-1], b, c[-1], d])
    fgraph, _ = _merged(graph, x=1.0, y=2.0)
    only_scan(fgraph)
    assert fgraph.outputs[0] is fgraph.outputs[2]


def test_case_2_constants() -> None:
    x = pt.dvector("x")
    parts = [x * pt.constant(np.array([2.0])) for _ in range(3)]
    graph = from_io([x], [pt.sin(parts[0]), pt.cos(parts[1]), parts[2]])
    fgraph, remarks = _merged(graph, x=[1.0])
    assert len(_constants(fgraph)) == 1
    assert remarks == [
        "passed graph: merged 2 nodes with equal ones",
        "passed graph: merged 2 constants with equal ones",
    ]


def _constants(fgraph: AbstractFunctionGraph) -> set[Variable]:
    return {v for node in fgraph.apply_nodes for v in node.inputs if isinstance(v, Constant)}


def test_large_constants_that_differ_in_one_entry() -> None:
    x = pt.dvector("x")
    rows = [np.zeros(1000) for _ in range(3)]
    rows[2][999] = 1e-300
    fgraph, _ = _merged(from_io([x], [x + pt.constant(row) for row in rows]), x=np.ones(1000))
    assert len(_constants(fgraph)) == len(fgraph.apply_nodes) == 2


def test_case_3_equal_layers_are_one_op_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred layers, each written in its own way: PyTensor alone compiles every body."""
    x = pt.dvector("x")
    outputs = x
    for number in range(100):
        a, w = pt.dvector("a"), pt.dscalar("w")
        body = pt.tanh(a * w + 1.0) if number % 2 else pt.tanh(1.0 + w * a)
        outputs = OpFromGraph([a, w], [body], name=f"layer{number}")(outputs, 0.5)
    graph = from_io([x], [outputs])
    assert _baked(graph.fgraph, monkeypatch) == 2
    fgraph, remarks = _merged(graph, x=[0.3, -0.2])
    assert "passed graph: made 99 nodes of OpFromGraph `layer0` share one Op" in remarks
    assert len({id(node.op) for node in fgraph.apply_nodes}) == 1
    assert _baked(fgraph, monkeypatch) == 1


def _baked(fgraph: FunctionGraph, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bodies PyTensor prepares to compile ``fgraph``."""
    made: list[object] = []
    clone = OpFromGraph.clone_with_inner_graph

    def counted(op: OpFromGraph, inner: Any) -> OpFromGraph:
        made.append(inner)
        return clone(op, inner)

    with monkeypatch.context() as patched:
        patched.setattr(OpFromGraph, "clone_with_inner_graph", counted)
        pytensor.function(fgraph.inputs, fgraph.outputs, mode="FAST_RUN")
    return len(made)


def test_bodies_are_merged_too_with_or_without_a_loop() -> None:
    s = pt.dvector("s")
    ys = scan(lambda a: pt.exp(a + 1) * pt.exp(1 + a), sequences=[s])
    fgraph, remarks = _merged(graph_of(ys), s=[1.0, 2.0])
    inside = Counter(str(node.op) for node in only_scan(fgraph).op.fgraph.apply_nodes)
    assert inside == {"Add": 1, "Exp": 1, "Mul": 1}
    assert remarks[0] == "passed scan_fn: merged 2 nodes with equal ones"


class Opaque(Op):
    """An Op that nothing tells by value: it holds a closure."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = self.function(inputs[0])


class InPlace(Op):
    """An Op that overwrites what it reads."""

    __props__ = ()
    destroy_map = {0: [0]}  # noqa: RUF012

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        inputs[0][...] *= 2
        outputs[0][0] = inputs[0]


def _gradients() -> list[Variable]:
    x = pt.dscalar("x")
    plain = OpFromGraph([x], [x * 2])
    other = OpFromGraph([x], [x * 2], pullback=lambda inputs, outputs, grads: [grads[0] * 3])
    inlined = OpFromGraph([x], [x * 2], inline=True)
    y = pt.dscalar("y")
    return [plain(y), other(y), inlined(y)]


def _different() -> dict[str, list[Variable]]:
    x = pt.dvector("x")
    z = pt.dscalar("z")
    return {
        "order of a difference": [x - z, z - x],
        "order of three summands": [(x + z) + 1.0, (x + 1.0) + z],
        "sign of a zero": [x * 0.0, x * pt.constant(-0.0)],
        "dtype of a constant": [
            x + pt.constant(1.0, dtype=dtype) for dtype in ("float32", "float64")
        ],
        "ways to differentiate": _gradients(),
        "closures": [Opaque(lambda v: v + 1)(x), Opaque(lambda v: v + 1)(x)],
        "axis": [pt.sum(x.dimshuffle("x", 0), axis=0), pt.sum(x.dimshuffle("x", 0), axis=1)],
        "loops of other lengths": [
            scan(lambda y: y * 2, outputs_info=[z], n_steps=steps)[-1] for steps in (3, 4)
        ],
        "while loops": [
            scan(
                lambda y, limit=limit: (y * 2, until(y > limit)),
                outputs_info=[z],
                n_steps=9,
            )[-1]
            for limit in (3.0, 4.0)
        ],
    }


@pytest.mark.parametrize("case", _different())
def test_what_differs_stays_two(case: str) -> None:
    graph = graph_of(*_different()[case])
    fgraph, _ = _merged(graph)
    assert len(set(fgraph.outputs)) == len(fgraph.outputs)
    assert len(list(scan_views(fgraph))) == len(list(scan_views(graph.fgraph)))


def test_opaque_ops_are_told() -> None:
    x = pt.dvector("x")
    _, remarks = _merged(graph_of(*(Opaque(lambda v: v + 1)(x) for _ in range(2))))
    assert "compared by identity: function" in remarks[0]
    assert "compared by all their state: Opaque" in remarks[1]


def test_ops_without_properties_are_merged_by_their_state_and_told() -> None:
    x = pt.dvector("x")
    fgraph, remarks = _merged(graph_of(Opaque(np.exp)(x), Opaque(np.exp)(x), Opaque(np.sin)(x)))
    assert len(fgraph.apply_nodes) == 2
    assert (
        remarks[-1] == "analysis graph: Ops without __props__, compared by all their state: Opaque"
    )


def test_nothing_is_shared_that_is_overwritten() -> None:
    x = pt.dvector("x")
    graph = graph_of(InPlace()(pt.exp(x)) + pt.exp(x))
    fgraph, remarks = _merged(graph)
    assert len(fgraph.apply_nodes) == 4
    assert remarks == ["missed graph: nothing is rewritten: InPlace works in place"]


def test_constants_of_the_graph_that_was_given_get_no_names() -> None:
    """Other graphs have the same constants; a copy has them, too."""
    plain, named = (pt.constant(np.array(2.0)).clone() for _ in range(2))
    named.name = "two"
    graph = graph_of(pt.exp(plain), pt.sin(named))
    fgraph, _ = _merged(graph)
    assert plain.name is None
    (kept,) = (v for v in fgraph.variables if isinstance(v, Constant))
    assert kept.name == "two"


def test_names_survive() -> None:
    x = pt.dvector("x")
    plain, named = pt.exp(x), pt.exp(x)
    named.name = "rate"
    fgraph, _ = _merged(graph_of(plain + 1, named + 2))
    assert [v.name for node in fgraph.apply_nodes for v in node.outputs].count("rate") == 1


def test_identity_is_equality_afterwards() -> None:
    x = pt.dvector("x")
    outputs = [scan(lambda a: pt.tanh(a) + 1, sequences=[pt.exp(x) * k]) for k in (2.0, 2.0, 3.0)]
    fgraph, _ = _merged(graph_of(*outputs), x=[1.0, 2.0])
    keys = [(node.op, tuple(node.inputs)) for node in fgraph.toposort()]
    assert len(keys) == len(set(keys))


def test_equal_loops_are_counted_apart() -> None:
    """The headline of `optimize` says how many loops are gone."""
    s, x = pt.dvector("s"), pt.dscalar("x")
    first, second, third = (
        scan(lambda a, y: y + a, sequences=[s], outputs_info=[x]) for _ in range(3)
    )
    result = optimize(graph_of(first, second * third), "merge-equal")
    told = [(r.code, r.count) for run in result.passes for r in run.remarks]
    assert (Code.LOOPS_MERGED, 2) in told
    assert headline(result, 0).startswith("3 Scans → 1: 2 loops merged with equal ones")
