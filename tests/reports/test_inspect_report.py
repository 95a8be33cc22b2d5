"""How loops are described for a person: each screen as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type

from scanopt_cli.analysis.distinct_loops import chosen
from scanopt_cli.analysis.inspection import Inspection, ScanReport, inspect_graph
from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.reports import as_markdown
from scanopt_cli.reports.inspect_report import inspect_report
from support.graph_building import graph_of, power, scan
from support.printing import printed
from support.sample_building import samples
from support.tiers import deep
from support.zoo.model import outputs_of
from support.zoo.models import MODELS


def shown(found: Inspection, width: int = 200, **options: Any) -> str:
    lines = printed(inspect_report(found, **options), width).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def without_places(graph: Graph) -> Inspection:
    found = inspect_graph(graph.fgraph)
    return replace(found, scans=tuple(replace(s, place="model.py:4 in f") for s in found.scans))


def hessian() -> Inspection:
    x, xs = power()
    return without_places(graph_of(pt.grad(pt.grad(xs[-1], x), x)))


@pytest.mark.parametrize(("count", "steps", "axes"), [(1, "step", "axis"), (2, "steps", "axes")])
def test_one_step_and_one_axis_are_no_plural(count: int, steps: str, axes: str) -> None:
    (scan,) = inspect_graph(graph_of(power()[1]).fgraph).scans
    slots = tuple(replace(slot, rows=str(count)) for slot in scan.slots)
    scan = replace(scan, steps=str(count), batch_ndim=count, truncate_gradient=count, slots=slots)
    title = shown(Inspection((scan,))).splitlines()[0]
    assert f": {count} {steps}, " in title
    assert f"batched over {count} {axes}, " in title
    assert f"gradient truncated after {count} {steps}, " in title
    assert f"{count} row{'' if count == 1 else 's'}, " in shown(Inspection((scan,)), 60)


NARROW = """\
4 loops, 3 of them distinct; float64; buffers: 192 bytes

square (model.py:4): 4 steps, 40 bytes
  1 sit_sot; a step: 1 node on numbers alone
grad_of_square#1 (model.py:4): 4 steps, 40 bytes each
  2 copies, which differ in what feeds them
  1 seq, 1 mit_mot; a step: 5 nodes on numbers alone
grad_of_grad_of_square (model.py:4): 4 steps, 72 bytes
  2 seq, 1 mit_mot, 1 nit_sot; a step: 11 nodes on numbers alone

all steps are on numbers alone: enabled() compiles them to machine code
details: scanopt inspect GRAPH --loop NAME, or --loop LINE"""

WIDE = [
    "loop where times steps slots dtype buffers a step",
    "square model.py:4 1 4 1 sit_sot float64 40 bytes 1 node on numbers alone",
    "grad_of_square#1, 2 copies, which differ in what feeds them model.py:4 2 4 1 seq, 1 mit_mot "
    "float64 40 bytes each 5 nodes on numbers alone",
    "grad_of_grad_of_square model.py:4 1 4 2 seq, 1 mit_mot, 1 nit_sot float64 72 bytes "
    "11 nodes on numbers alone",
]


def test_several_loops_are_a_row_for_each_distinct_one() -> None:
    assert shown(hessian(), 80) == NARROW
    wide = shown(hessian(), 240).splitlines()
    assert [" ".join(line.split()) for line in wide if "  " in line] == WIDE
    markdown = as_markdown.render(inspect_report(hessian()))
    assert (
        markdown.splitlines()[2]
        == "| "
        + " | ".join(("loop", "where", "times", "steps", "slots", "dtype", "buffers", "a step"))
        + " |"
    )
    assert markdown.count("\n| **") == 3


DETAILS = """\
Scan grad_of_square (model.py:4 in f): 4 steps, 5 nodes inside, 40 bytes of
buffers
a step: 5 nodes on numbers alone
  seq      seq[0]  float64
    fed by   Scan square[:-1][::-1][:4]
    inside   seq[0][t]
  mit_mot  mit_mot[0]  t t+1 → t+1, float64, 5 rows, 40 bytes
    fed by   second(Scan square, 0.0)[1:].inc(second(…, …)[-1].inc(secon…
    inside   ((mit_mot[0][t] * 2) * (seq[0][t] ** (2 - 1))) + mit_mot[0]…
    read by  [::-1]"""


def test_one_loop_is_chosen_with_its_slots() -> None:
    x, xs = power()
    found = chosen(without_places(graph_of(pt.grad(xs[-1], x))), "grad_of_square")
    assert shown(found, 80, details=True) == DETAILS
    wide = shown(found, 200, details=True)
    columns = "kind name taps dtype shape rows bytes fed by inside read by"
    assert columns in [" ".join(line.split()) for line in wide.splitlines()]
    assert "| kind | name | taps | dtype | shape | rows | bytes |" in as_markdown.render(
        inspect_report(found, details=True)
    )


def test_of_copies_the_first_is_shown() -> None:
    text = shown(chosen(hessian(), "grad_of_square"), 200, details=True)
    assert "2 copies, which differ in what feeds them, and this is the first" in text
    assert text.count(" node") == 2


def test_a_graph_of_few_slots_is_shown_with_them() -> None:
    text = shown(without_places(graph_of(power()[1])), 80)
    assert text == (
        "Scan square (model.py:4 in f): 4 steps, 1 node inside, 40 bytes of buffers\n"
        "a step: 1 node on numbers alone\n"
        "  sit_sot  x  t-1, float64, 5 rows, 40 bytes\n"
        "    fed by   AllocEmpty(5)[:1].set(x)\n"
        "    inside   x[t-1] ** 2\n"
        "    read by  [1:]"
    )
    assert "details" in shown(without_places(graph_of(power()[1])), 80, details=False)
    assert shown(Inspection(())) == "no loop in this graph"


def nested() -> Inspection:
    x, w = pt.dmatrix("x"), pt.tensor("w", shape=(3, 3))

    def step(row: Any, w: Any) -> Any:
        hs = scan(
            lambda h, w: pt.tanh(w @ h), outputs_info=[row[:3]], non_sequences=[w], n_steps=4,
            name="inner",
        )  # fmt: skip
        return hs[-1].sum()

    return without_places(
        graph_of(scan(step, sequences=[x], non_sequences=[w], name="outer"), power(2)[1])
    )


def test_loops_inside_are_below_the_one_around() -> None:
    text = shown(nested(), 100)
    assert "\n  inner (model.py:4): 4 steps" in text
    assert "loops: inner" in text
    assert "tanh (3)" in text
    assert "on numbers alone, which enabled() compiles to machine code: square\n" in text
    assert "↳ inner" in shown(nested(), 200)
    assert "\n    Scan inner in outer (model.py:4 in f): 4 steps" in shown(
        nested(), 100, details=True
    )


def split() -> Inspection:
    x, w, h0 = (pt.tensor(n, shape=s) for n, s in (("x", (None, 2)), ("w", (2, 2)), ("h0", (2,))))
    h = scan(
        lambda x, h, w: pt.tanh(w @ h + x), sequences=[x], outputs_info=[h0], non_sequences=[w]
    )
    return inspect_graph(optimize(graph_of(h[-1].sum(), h.sum()), "loop").graph.fgraph)


def test_an_array_that_was_split_is_one_row() -> None:
    lines = [" ".join(line.split()) for line in shown(split(), 80, details=True).splitlines()]
    assert "state h0[0..1] t-1, float64 (2)" in lines
    assert "constant w[0..1, 0..1] float64 (2, 2)" in lines
    assert lines[lines.index("constant w[0..1, 0..1] float64 (2, 2)") + 1] == "fed by w"
    (loop,) = split().scans
    assert sum(slot.entry is not None for slot in loop.slots) == 6
    assert " 2 state, 2 constant;" in shown(split(), 80, details=False)


def test_some_entries_of_an_array_are_counted() -> None:
    (loop,) = split().scans
    slots = tuple(slot for slot in loop.slots if slot.name != "w[0, 0]")
    assert "w[0..1, 0..1] (3 of 4)" in shown(Inspection((replace(loop, slots=slots),)), 80)


def test_draws_that_are_the_same_are_warned_of_in_both_ways() -> None:
    x, rng = pt.dscalar("x"), random_generator_type("rng")
    walk = scan(
        lambda h, rng: h + pt.random.normal(rng=rng), outputs_info=[x], non_sequences=[rng],
        n_steps=4, name="walk",
    )  # fmt: skip
    found = inspect_graph(graph_of(walk).fgraph)
    for details in (True, False):
        text = " ".join(shown(found, 80, details=details).split())
        assert "warning: walk: every step draws the same numbers from rng" in text
        assert "1 node on numbers; 1 draw" in text


def test_many_loops_are_some_rows_and_a_count() -> None:
    x, zero = pt.dvector("x"), pt.constant(0.0, dtype="float64")
    steps = [lambda a, s, i=i: pt.tanh(a) * (i + 2) + s for i in range(30)]
    found = inspect_graph(
        graph_of(*(scan(f, sequences=[x], outputs_info=[zero])[-1] for f in steps)).fgraph
    )
    text = shown(found, 80)
    assert "… 19 more distinct loops; --format json has all" in text
    assert len(text.splitlines()) <= 40


NESTED = ("rows of elements", "LSTM")
SOME = [model for model in MODELS if model.name in NESTED or model in MODELS[::6]]


def fits(graph: Graph) -> None:
    lines = printed(inspect_report(inspect_graph(graph.fgraph)), 80).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", samples())
def test_each_sample_is_one_screen(name: str) -> None:
    fits(samples()[name])


@pytest.mark.deep
@pytest.mark.parametrize("model", [*SOME, *deep(*(m for m in MODELS if m not in SOME))], ids=str)
def test_each_model_and_its_derivatives_are_one_screen(model: Any) -> None:
    for order in range(model.order + 1 if model.wrt else 1):
        fits(as_graph(outputs_of(model, order)))


@pytest.mark.pymc
@pytest.mark.parametrize("name", ["garch", "sir", "local_level", "statespace"])
def test_a_hessian_of_many_loops_is_one_screen(name: str) -> None:
    from support import pymc_models

    model = getattr(pymc_models, name)()
    fits(as_graph((list(model.value_vars), [model.d2logp()])))


def test_one_report_needs_the_inspection_alone() -> None:
    """As of JSON, or of an object that was kept."""
    found = hessian()
    scans: tuple[ScanReport, ...] = tuple(replace(s) for s in found.scans)
    assert shown(Inspection(scans, found.shared, found.bytes), 80) == shown(found, 80)
