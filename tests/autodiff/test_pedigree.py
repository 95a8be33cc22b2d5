"""The pedigree says which Scan is the pullback of which, whatever the loops are called."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph

from scanopt_cli.analysis.provenance.inference import TimeDirection
from scanopt_cli.autodiff.differentiating import grad as differentiate
from scanopt_cli.autodiff.pedigree.pedigree import Pedigree, ScanRecord, pedigree
from scanopt_cli.autodiff.pedigree.recorder import rename
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.graph import Graph, as_graph
from support.graph_building import graph_of, power, scan, scan_views

grad = partial(differentiate, strategy="reverse")

FORWARD, BACKWARD = TimeDirection.FORWARD, TimeDirection.BACKWARD

x, a = pt.dscalars("x", "a")
s = pt.dvector("s")
n = pt.lscalar("n")


def record(found: Pedigree, name: str) -> ScanRecord:
    (one,) = (record for record in found.scans if record.full_name == name)
    return one


def parents(found: Pedigree) -> dict[str, str | None]:
    return {record.full_name: record.parent for record in found.scans}


def chain(first: str | None, second: str | None) -> Graph:
    """A loop, and a loop over its steps."""
    hs = scan(lambda q, h: pt.tanh(h * q), sequences=[s], outputs_info=[x], name=first)
    gs = scan(lambda q, g: pt.sin(g + q * a), sequences=[hs], outputs_info=[x], name=second)
    graph = graph_of(gs[-1])
    for view, name in zip(scan_views(graph.fgraph), (first, second), strict=True):
        rename(view.node, name)
    return graph


def compiled(graph: Graph) -> Graph:
    """The graph as PyTensor rewrites it to run, but not in place and not fused."""
    mode = Mode(linker="py", optimizer="fast_run").excluding("inplace", "fusion")
    function = pytensor.function(graph.inputs, graph.outputs, mode=mode, on_unused_input="ignore")
    return as_graph(function.maker.fgraph)


def test_the_second_derivative_of_a_power() -> None:
    square, xs = power(4)
    derivative = grad(([square], [xs[-1]]), 2)
    assert [
        (r.name, r.generation, r.parent, r.direction, r.depends_on, r.reads_inputs)
        for r in derivative.pedigree.scans
    ] == [
        ("square", 0, None, FORWARD, (), ("x",)),
        ("grad_of_square#1", 1, "square", BACKWARD, ("square",), ()),
        (
            "grad_of_grad_of_square",
            2,
            "grad_of_square#1",
            FORWARD,
            ("square", "grad_of_square#1"),
            ("x",),
        ),
        ("grad_of_square#2", 1, "square", BACKWARD, ("square", "grad_of_grad_of_square"), ()),
    ]
    assert [len(report.pedigree.scans) for report in derivative.orders] == [1, 2, 4]
    last = record(derivative.pedigree, "grad_of_square#1")
    assert (last.mit_mot, last.seqs, last.sit_sot, last.nodes) == (1, 1, 0, 5)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize(
    "names",
    [("loop", "loop"), ("loop", "grad_of_loop"), ("grad_of_loop", "loop"), (None, None)],
)
def test_names_that_collide_do_not_mislead(names: tuple[str | None, str | None]) -> None:
    """What the loops are called changes what the Scans are called, and nothing else."""
    plain = grad(chain("f", "g"), 2).pedigree
    other = grad(chain(*names), 2).pedigree
    translated = dict(
        zip(
            (r.name for r in plain.scans),
            (r.name for r in other.scans),
            strict=True,
        )
    )
    assert len(set(translated.values())) == len(other.scans) == 8
    for one, two in zip(plain.scans, other.scans, strict=True):
        assert (two.generation, two.direction, two.reason) == (
            one.generation,
            one.direction,
            one.reason,
        )
        assert two.parent == (None if one.parent is None else translated[one.parent])
        assert two.depends_on == tuple(translated[name] for name in one.depends_on)


def test_names_are_those_that_pytensor_gives() -> None:
    derivative = grad(chain("f", None), 2)
    names = [view.op.name for view in scan_views(derivative.graph.fgraph)]
    assert names.count("f") == 1
    assert names.count("grad_of_f") == 2
    assert names.count("grad_of_grad_of_f") == 1
    assert names.count(None) == 4


def test_a_loop_that_is_only_called_like_a_pullback_is_a_loop() -> None:
    graph = chain("f", "grad_of_f")
    own = record(pedigree(graph), "grad_of_f")
    assert (own.parent, own.generation, own.reason, own.direction) == (None, 0, None, FORWARD)


def test_a_loop_that_reads_backwards_is_not_taken_for_a_pullback_either() -> None:
    hs = scan(lambda q, h: pt.tanh(h * q), sequences=[s], outputs_info=[x], name="f")
    gs = scan(
        lambda q, h, g: g + q * h, sequences=[s[::-1], hs[::-1]], outputs_info=[x], name="grad_of_f"
    )
    own = record(pedigree(graph_of(gs[-1])), "grad_of_f")
    assert (own.parent, own.generation, own.direction) == (None, 0, BACKWARD)


def test_a_parent_that_the_graph_does_not_need_is_not_claimed() -> None:
    out = scan(lambda h, f: h * f, outputs_info=[x], non_sequences=[a], n_steps=n, name="line")
    (alone,) = pedigree(compiled(grad(graph_of(out[-1]), wrt=["x"]).graph)).scans
    assert (alone.name, alone.parent, alone.generation) == ("grad_of_line", None, None)
    assert alone.reason == "there is no Scan line that it could be the pullback of"
    assert alone.direction is TimeDirection.UNKNOWN


def test_inference_is_right_or_open_in_a_compiled_graph() -> None:
    work = compiled(grad(chain("f", "g"), 2).graph)
    known = pedigree(work)
    assert any(one.parent is not None for one in known.scans)
    for view in scan_views(work.fgraph):
        rename(view.node, f"{view.name[:-1]}f")
    blurred = pedigree(work)
    translated = dict(
        zip((one.name for one in known.scans), (two.name for two in blurred.scans), strict=True)
    )
    for one, two in zip(known.scans, blurred.scans, strict=True):
        if two.parent is None:
            assert two.reason is not None or one.parent is None
        else:
            assert one.parent is not None
            assert two.parent == translated[one.parent]


def test_loops_in_loops() -> None:
    def step(h: Any) -> Any:
        inside = scan(lambda v: pt.sin(v) * v, outputs_info=[h], n_steps=2, name="inner")
        return inside[-1]

    out = scan(step, outputs_info=[x], n_steps=n, name="outer")[-1]
    found = grad(graph_of(out)).pedigree
    assert parents(found) == {
        "outer": None,
        "outer/inner": None,
        "grad_of_outer": "outer",
        "grad_of_outer/inner": None,
        "grad_of_outer/grad_of_inner": "inner",
    }
    pulled = record(found, "grad_of_outer/grad_of_inner")
    assert (pulled.path, pulled.generation, pulled.direction) == (("grad_of_outer",), 1, BACKWARD)
    assert pulled.depends_on == ("inner",)
    assert record(found, "outer/inner").path == ("outer",)
    assert found.show("grad_of_outer/inner").startswith("Scan{inner,")
    with pytest.raises(GradientError, match="full name: outer/inner, grad_of_outer/inner"):
        found.show("inner")


def test_an_inner_parent_that_the_pullback_does_not_repeat() -> None:
    """The pullback of a linear loop needs none of its results, so its body has no copy of it."""

    def step(h: Any, f: Any) -> Any:
        inside = scan(lambda v, g: v * g, outputs_info=[h], non_sequences=[f], n_steps=3, name="i")
        return inside[-1] + h**2

    out = scan(step, outputs_info=[x], non_sequences=[a], n_steps=n, name="outer")[-1]
    found = pedigree(compiled(grad(graph_of(out), wrt=["x"]).graph))
    assert [one.name for one in found.scans] == ["outer", "i", "grad_of_outer", "grad_of_i"]
    pulled = record(found, "grad_of_outer/grad_of_i")
    assert (pulled.parent, pulled.generation, pulled.direction) == ("outer/i", 1, BACKWARD)
    assert pulled.path == ("grad_of_outer",)


def test_batched_loops_and_those_in_graphs() -> None:
    batched = vectorize_graph(power(3)[1][-1], {power(3)[0]: s})
    assert [r.name for r in pedigree(graph_of(batched)).scans] == ["square"]
    square, xs = power(3)
    batch = grad(([s], [vectorize_graph(xs[-1], {square: s})]), 2).pedigree
    assert [(r.generation, r.parent) for r in batch.scans] == [
        (0, None),
        (1, "square"),
        (2, "grad_of_square#1"),
        (1, "square"),
    ]
    model = OpFromGraph([square], [xs[-1]], name="model")
    found = grad(([x], [model(x)])).pedigree
    assert (found.scans[0].name, found.scans[0].path) == ("square", ("model",))
    pulled = record(found, "model_LOp/grad_of_square")
    assert (pulled.generation, pulled.direction) == (1, BACKWARD)
    assert pulled.parent == "square"
    assert record(found, "model_LOp/square").path == pulled.path


def test_a_backward_loop_goes_backward_and_its_pullback_forward() -> None:
    out = scan(
        lambda q, h: pt.tanh(h + q), sequences=[s], outputs_info=[x], go_backwards=True, name="b"
    )[-1]
    found = grad(graph_of(out)).pedigree
    assert record(found, "b").direction is BACKWARD
    assert record(found, "grad_of_b").direction is FORWARD


def test_one_scan_is_shown_alone_without_letters() -> None:
    square, xs = power(4)
    derivative = grad(([square], [xs[-1]]), 2)
    text = derivative.show("grad_of_square#2")
    assert text.splitlines()[:2] == [
        "Scan{grad_of_square, while_loop=False, inplace=none}",
        "    n_steps: 4",
    ]
    assert "seq[0]: " in text
    assert "mit_mot[0][t+1] =" in text
    assert "seq[0][t]" in text
    assert "[id" not in text
    assert derivative.show("square").endswith("x[t-1]\n     └─ 2")
