"""Each rule finds what it is for, and not what is near it; its fix keeps values and mends it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.integration.scan_calls import recorded_scan_calls
from scanopt_cli.rules.graph_checking import check
from scanopt_cli.rules.rule_contract import Severity
from scanopt_cli.rules.rule_registry import rules
from support.graph_building import scan
from support.seeded_graphs import SEEDED, VALUES, Graph, V, X, unused
from support.seeded_loops import WITHOUT_FIX
from support.seeded_numbers import UNFIXED


def found(graph: Graph, code: str) -> list[Any]:
    return list(check(graph, select=[code]).findings)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", SEEDED)
def test_it_is_found_once(name: str) -> None:
    code, seeded, _ = SEEDED[name]
    (finding,) = found(seeded(), code)
    assert finding.text
    # What PyTensor moves as well is a note.
    is_milder = name == "a product"
    assert finding.severity is (Severity.NOTE if is_milder else rules()[code].severity)


@pytest.mark.parametrize("name", SEEDED)
def test_twin_it_is_not_found(name: str) -> None:
    code, _, twin = SEEDED[name]
    assert not found(twin(), code)


def test_every_rule_is_tried() -> None:
    assert {code for code, *_ in SEEDED.values()} == set(rules())


def values(graph: Any) -> list[Any]:
    inputs, outputs = graph if isinstance(graph, tuple) else (graph.inputs, graph.outputs)
    function = pytensor.function(inputs, outputs, on_unused_input="ignore")
    return function(*(VALUES[v.name] for v in inputs))


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize(
    "name",
    # What C003 finds has other values once compiled: `test_miscompiled_forms` compares those.
    [n for n, (code, *_) in SEEDED.items() if rules()[code].fix is not None and code != "C003"],
)
def test_its_fix_mends_it_and_keeps_values(name: str) -> None:
    code, seeded, _ = SEEDED[name]
    graph = seeded()
    (finding,) = found(graph, code)
    if finding.fix is None:
        assert name in {"a running sum", *WITHOUT_FIX, *UNFIXED}
        return
    mended = so.optimize(graph, finding.fix.passes).graph
    assert not [f for f in check(mended).findings if f.code == code]
    if not finding.fix.is_safe and not code.startswith("N"):
        # What is drawn or counted instead is in the tests of the passes.
        assert finding.fix.passes in ("carry-generators", "widen-integers")
        return
    for old, new in zip(values(graph), values(mended), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12)


@pytest.mark.parametrize("code", rules())
def test_manuals_say_why_and_give_an_example(code: str) -> None:
    text = rules()[code].__doc__ or ""
    assert "::\n" in text
    assert not text.partition("\n")[0].startswith(" ")


def test_findings_say_where_and_what_it_costs() -> None:
    with recorded_scan_calls():
        (finding,) = found(unused(read=False), "P001")
    assert finding.place is not None
    assert finding.place.endswith(" in unused")
    assert finding.loop == "scan_fn"
    assert finding.cost == "8*x.shape[0] bytes"
    assert finding.slots == ("nit_sot[0]",)


def test_each_body_is_checked_once() -> None:
    def step(x: Any, s: Any) -> Any:
        inner, _ = scan(lambda t: [t * 2, pt.log(t)], outputs_info=[s, None], n_steps=3)
        return s + inner[-1] * x

    graph = [X, V], [scan(step, sequences=[X], outputs_info=[V])]
    (finding,) = found(graph, "P001")
    assert finding.loop == "scan_fn/scan_fn"


@pytest.mark.parametrize("passes", ["default", "grad", "loop"])
def test_what_was_trimmed_after_it_was_differentiated_is_right(passes: str) -> None:
    _, sums = scan(lambda x, s, t: [pt.tanh(s * x), t + s], sequences=[X], outputs_info=[V, V])
    graph = [X, V], [sums[-1], pt.grad(sums[-1], V)]
    assert not found(graph, "C001")
    optimized = so.optimize(graph, passes).graph
    assert not [f for f in check(optimized).findings if f.code == "C001"]


def test_what_pytensor_merges_is_no_finding() -> None:
    ys = scan(lambda x, s: pt.sin(s * x), sequences=[X], outputs_info=[V])
    zs = scan(lambda x, s: pt.sin(s * x), sequences=[X], outputs_info=[V])
    assert not check(([X, V], [ys * 2 + 1, zs * 2 + 1])).findings
