"""What has no derivative, or would get a wrong one, is refused in one clear line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.conditional.op import LazyIfElse
from pytensor.gradient import grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.autodiff.choices import Strategy
from scanopt_cli.autodiff.differentiating import grad
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.graph import Graph, GraphLike
from support.evaluating import evaluate
from support.graph_building import graph_of, optimized, power, scan

x, a = pt.dscalars("x", "a")
s = pt.dvector("s")
n = pt.lscalar("n")


class Rounded(Op):
    """An Op that has no derivative, as its author says or does not say."""

    __props__ = ("how",)

    def __init__(self, how: str) -> None:
        self.how = how

    def make_node(self, value: Variable) -> Apply:
        return Apply(self, [value], [value.type()])

    def perform(self, node: Apply, inputs: list[Any], outputs: Any) -> None:
        outputs[0][0] = np.asarray(np.round(inputs[0]))

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        if self.how == "null":
            return [grad_not_implemented(self, 0, inputs[0])]
        return super().pullback(inputs, outputs, cotangents)


class RealPart(Op):
    """The real part, with a pullback to which PyTensor does not object."""

    __props__ = ()

    def make_node(self, value: Variable) -> Apply:
        return Apply(self, [value], [pt.dscalar()])

    def perform(self, node: Apply, inputs: list[Any], outputs: Any) -> None:
        outputs[0][0] = np.asarray(inputs[0].real)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        return list(cotangents)


def refused(graph: GraphLike, order: int = 1, **arguments: Any) -> str:
    with pytest.raises(GradientError) as caught:
        grad(graph, order, **arguments)
    line = str(caught.value)
    assert "\n" not in line
    return line


def squares(start: Any, name: str = "square", steps: Any = 4) -> Any:
    return scan(lambda h: h**2, outputs_info=[start], n_steps=steps, name=name)


@pytest.mark.parametrize("order", [0, -1])
def test_there_is_no_order_below_one(order: int) -> None:
    assert refused(([x], [x**2]), order) == (
        f"<memory>: there is no derivative of order {order}; ask for 1 or more"
    )


def test_an_integer_input_has_no_derivative() -> None:
    graph = [x, n], [squares(x, steps=n)[-1]]
    assert "n is int64: only floating-point inputs have a derivative" in refused(graph, wrt=["n"])
    assert grad(graph).wrt == ("x",)


def test_an_unknown_input_gets_the_nearest_name() -> None:
    rate = pt.dscalar("rate")
    line = refused(([x, rate], [x * rate]), wrt=["rte"])
    assert "no input called rte; did you mean rate? inputs: x (#0), rate (#1)" in line


def test_a_name_that_repeats_needs_a_position() -> None:
    twin = pt.dscalar("x")
    graph = [x, twin], [x * twin**2]
    assert "2 inputs are called x; choose one by its position: #0, #1" in refused(graph, wrt=["x"])
    assert grad(graph, wrt=["#1"]).wrt == ("x",)


@pytest.mark.parametrize("selector", [2, -1, "#2"])
def test_a_position_out_of_range(selector: int | str) -> None:
    assert "there is no input #" in refused(([x, a], [x * a]), wrt=[selector])


def test_a_foreign_variable_is_no_input() -> None:
    assert "a is not an input of the graph" in refused(([x], [x**2]), wrt=[a])


def test_no_input_at_all() -> None:
    assert "no input to differentiate by" in refused(([x], [x**2]), wrt=[])


@pytest.mark.parametrize("output", [1, "#3", "loss"])
def test_an_output_that_does_not_exist(output: int | str) -> None:
    line = refused(([x], [x**2]), output=output)
    assert "there is no output" in line
    assert "outputs: out (#0)" in line


def test_an_integer_output_has_no_derivative() -> None:
    line = refused(([x], [pt.floor(x).astype("int64")]))
    assert "output out is int64: only floating-point outputs have a derivative" in line


def test_an_input_that_does_not_count() -> None:
    assert "the output does not depend on a" in refused(([x, a], [x**2]), wrt=["a"])
    assert grad(([x, a], [x**2])).wrt == ("x",)


@pytest.mark.parametrize(
    "out",
    [
        squares(x, steps=a.astype("int64"))[-1],
        x * pt.switch(a > 0, 1.0, 2.0),
        s[a.astype("int64")] * x,
        pt.ones((a.astype("int64"),)).sum() * x,
    ],
    ids=["step count", "comparison", "index", "shape"],
)
def test_an_input_that_counts_only_in_jumps(out: Variable) -> None:
    graph = graph_of(out)
    assert "depends on a only through what has no derivative" in refused(graph, wrt=["a"])
    assert "a" not in grad(graph).wrt


def test_nothing_to_differentiate_by() -> None:
    line = refused(([n], [pt.cast(n, "float64") ** 2]))
    assert "depends on no floating-point input in a differentiable way" in line


def _complex_power() -> Graph:
    """The size of a complex state that is squared in each step, by its real and imaginary start."""
    start = pt.complex(x, a)
    last = scan(lambda z, c: z**2 + c, outputs_info=[start], non_sequences=[start], n_steps=3)[-1]
    return graph_of(pt.real(last) ** 2 + pt.imag(last) ** 2)


@pytest.mark.parametrize("strategy", [*Strategy])
@pytest.mark.parametrize("wrt", [None, ["x"]], ids=["all", "x"])
def test_what_pytensor_says_of_complex_numbers_is_passed_on(
    strategy: Strategy, wrt: list[str] | None
) -> None:
    graph = _complex_power()
    with pytest.raises(TypeError) as caught:
        pt.grad(graph.outputs[0], graph.inputs)
    line = refused(graph, wrt=wrt, strategy=strategy)
    assert " ".join(str(caught.value).split()) in line


def test_complex_numbers_that_pytensor_differentiates() -> None:
    size = RealPart()(pt.complex(x, a))
    pt.grad(size, [x, a])
    # A strategy that follows floats alone would find the derivative of the other part only.
    for output in (size, size + x**2):
        for strategy in Strategy:
            line = refused(([x, a], [output]), strategy=strategy)
            assert "the output depends on x, a through complex numbers, made by Complex" in line


def test_complex_numbers_elsewhere_do_not_matter() -> None:
    size = pt.real(pt.complex(a, a))
    assert grad(([x, a], [x**2 + size]), wrt=["x"]).wrt == ("x",)


@pytest.mark.parametrize("how", ["null", "missing"])
def test_an_op_without_a_derivative_is_named_with_its_scan(how: str) -> None:
    def step(h: Any) -> Any:
        inside = scan(lambda v: Rounded(how)(v), outputs_info=[h], n_steps=2, name="inner")
        return inside[-1]

    out = scan(step, outputs_info=[x], n_steps=3, name="outer")[-1]
    line = refused(([x], [out]))
    assert f"Rounded{{how='{how}'}} in outer/inner has no derivative" in line
    assert f"Rounded{{how='{how}'}} has no derivative" in refused(([x], [Rounded(how)(x)]))


def test_a_draw_that_counts_is_named() -> None:
    rng = pytensor.shared(np.random.default_rng(0), name="rng")

    def step(h: Any, state: Any, mean: Any) -> Any:
        after, noise = pt.random.gamma(mean, scale=1.0, rng=state, return_next_rng=True)
        return h + noise, after

    last = scan(step, outputs_info=[x, rng], non_sequences=[a], n_steps=3, name="walk")[0][-1]
    graph = graph_of(last)
    assert grad(graph, wrt=["x"]).wrt == ("x",)
    line = refused(graph)
    assert "gamma" in line
    assert "in walk has no derivative" in line
    assert line.endswith("there is a derivative by x")


def saved(*outputs: Any) -> Graph:
    work, remarks = optimized(graph_of(*outputs), "save-mem")
    assert any(remark.startswith("passed") for remark in remarks)
    return work


def assert_refuses_trimmed(graph: GraphLike, scan_name: str, **arguments: Any) -> None:
    line = refused(graph, **arguments)
    assert f"Scan {scan_name} is not proved to keep every step of" in line
    assert line.endswith("differentiate before save-mem")


def test_a_trimmed_loop_is_refused_that_pytensor_gets_wrong() -> None:
    square, xs = power(4)
    trimmed = saved(xs[-1])
    wrong = pytensor.grad(trimmed.outputs[0], trimmed.inputs[0])
    (value,) = evaluate(trimmed.inputs, [wrong], [np.array(0.9)])
    assert isinstance(value, Exception) or abs(value - 16 * 0.9**15) > 1
    assert_refuses_trimmed(trimmed, "square")
    assert grad(([square], [xs[-1]])).wrt == ("x",)


@pytest.mark.parametrize("rewrite", ["scan_reduce_trace_prealloc", "scan_reduce_trace_no_prealloc"])
def test_a_loop_that_pytensor_trimmed_is_refused(rewrite: str) -> None:
    square, xs = power(4)
    mode = Mode(linker="py", optimizer="fast_compile").including(rewrite).excluding("inplace")
    compiled = pytensor.function([square], xs[-1], mode=mode)
    assert_refuses_trimmed(compiled.maker.fgraph, "square")


def test_a_trimmed_loop_in_a_body_is_refused() -> None:
    body = scan(lambda h: squares(h, "inner", 2)[-1], outputs_info=[x], n_steps=3, name="outer")
    assert_refuses_trimmed(saved(body.sum()), "outer/inner")
    inline = OpFromGraph([x], [squares(x)[-1]], name="model")
    assert_refuses_trimmed(saved(inline(x)), "model/square")
    batched = vectorize_graph(squares(x)[-1], {x: s})
    assert_refuses_trimmed(saved(batched), "square")


def test_a_trimmed_while_loop_is_refused() -> None:
    def step(h: Any) -> Any:
        return h**2, until(h > 10)

    assert_refuses_trimmed(saved(scan(step, outputs_info=[x], n_steps=9, name="w")[-1]), "w")


def test_a_trimmed_loop_off_the_way_does_not_count() -> None:
    graph = saved(squares(x, "whole").sum() * squares(a, "short")[-1])
    assert_refuses_trimmed(graph, "short")
    assert grad(graph, wrt=["x"]).wrt == ("x",)
    only_steps = saved(squares(x, steps=squares(n, "count")[-1]).sum())
    assert grad(only_steps).wrt == ("x",)


def test_a_body_that_brings_its_derivative_is_not_looked_into() -> None:
    own = OpFromGraph(
        [x], [squares(x)[-1]], pullback=lambda inputs, outputs, cotangents: [cotangents[0]]
    )
    assert grad(saved(own(x))).wrt == ("x",)


def test_a_graph_that_works_in_place_is_refused() -> None:
    mode = Mode(linker="vm", optimizer="fast_run")
    compiled = pytensor.function([x], squares(x)[-1] * 2, mode=mode)
    line = refused(compiled.maker.fgraph)
    assert "works in place" in line
    assert "before it is compiled" in line


def test_a_fused_graph_names_the_remedy() -> None:
    mode = Mode(linker="vm", optimizer="fast_run").excluding("inplace")
    compiled = pytensor.function([x, a], pt.exp(x) * a + x, mode=mode)
    line = refused(compiled.maker.fgraph, strategy="reverse")
    assert "differentiate the graph as it is before that" in line
    assert grad(compiled.maker.fgraph).strategy == "forward"


def test_the_derivative_of_a_truncated_gradient_is_refused() -> None:
    """PyTensor starts it at the end of the buffers that the truncation has left zero."""
    out = scan(
        lambda q, h: pt.sin(h * q),
        sequences=[s],
        outputs_info=[x],
        truncate_gradient=2,
        name="loop",
    )[-1]
    line = refused(graph_of(out), 2)
    assert "Scan grad_of_loop is a gradient truncated after 2 steps" in line
    loaded = grad(graph_of(out)).graph
    assert "truncated after 2 steps" in refused((loaded.inputs, loaded.outputs))


def test_a_scan_that_does_not_exist_cannot_be_shown() -> None:
    derivative = grad(([x], [squares(x)[-1]]), strategy="reverse")
    with pytest.raises(GradientError, match="no Scan called squre; did you mean square"):
        derivative.show("squre")


def test_a_graph_that_runs_one_of_two_others_is_named() -> None:
    """Its first input is the condition, which the two graphs do not take."""
    v = pt.dvector("v")
    branch = OpFromGraph([v], [v + 1])
    chosen = LazyIfElse(branch, branch, (v.type,))
    with pytest.raises(GradientError, match="LazyIfElse has no derivative"):
        grad(([v], [chosen(v.sum() > 0, v).sum()]))
