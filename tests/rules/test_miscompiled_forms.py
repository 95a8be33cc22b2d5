"""C003 finds what PyTensor alone compiles wrongly, and nothing that it compiles right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode, get_mode
from pytensor.configdefaults import config

import scanopt_cli as so
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.graph_checking import check
from scanopt_cli.rules.miscompiled_forms import MiscompiledForms
from support.evaluating import PLAIN
from support.graph_building import scan
from support.seeded_numbers import COMPILED_RIGHT, MISCOMPILED, V, X
from support.tiers import deep

FAST = Mode(linker="vm", optimizer="fast_run")
NUMBA = get_mode("NUMBA")
# PyTensor raises an error, when it compiles or when it runs.
RAISES = {
    "a sum of three, product last": AssertionError,
    "a sum of three, state last": AssertionError,
    "a row of a while loop": IndexError,
    "states that reach back differently": ValueError,
}


def value(inputs: Any, output: Any, arguments: Any, mode: Any) -> Any:
    with config.change_flags(on_opt_error="ignore"):
        function = pytensor.function(inputs, output, mode=mode, on_unused_input="ignore")
    return function(*arguments)


def found(inputs: Any, output: Any) -> list[Any]:
    return list(check((inputs, [output]), select=["C003"]).findings)


def differs(one: Any, other: Any) -> bool:
    return np.shape(one) != np.shape(other) or not np.allclose(one, other)


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize("name", MISCOMPILED)
@pytest.mark.parametrize("mode", [FAST, *deep(NUMBA)], ids=["vm", "numba"])
def test_it_is_found_and_is_wrong_and_is_right_once_fixed(name: str, mode: Any) -> None:
    output, arguments = MISCOMPILED[name]()
    inputs, given = list(arguments), list(arguments.values())
    (finding,) = found(inputs, output)
    assert finding.is_mended_safely
    right = value(inputs, output, given, PLAIN)
    if name in RAISES:
        with pytest.raises(RAISES[name]):
            value(inputs, output, given, mode)
    else:
        assert differs(value(inputs, output, given, mode), right)
    mended = so.optimize((inputs, [output]), finding.fix.passes).graph
    assert not found(mended.inputs, mended.outputs[0])
    np.testing.assert_allclose(value(mended.inputs, mended.outputs[0], given, mode), right)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", COMPILED_RIGHT)
def test_twin_it_is_not_found_and_is_right(name: str) -> None:
    output, arguments = COMPILED_RIGHT[name]()
    inputs, given = list(arguments), list(arguments.values())
    assert not found(inputs, output)
    right = value(inputs, output, given, PLAIN)
    np.testing.assert_allclose(value(inputs, output, given, FAST), right)


@pytest.mark.parametrize("case", MISCOMPILED.values(), ids=MISCOMPILED)
def test_findings_name_the_rewrite(case: Callable[[], Any]) -> None:
    output, arguments = case()
    (finding,) = found(list(arguments), output)
    assert any(name in finding.text for name in ("scan_", "ScanMerge"))


def test_a_loop_in_a_body_is_looked_at() -> None:
    def step(x: Any, s: Any) -> Any:
        ys = scan(lambda y, w: w + 1, outputs_info=[s], non_sequences=[x], n_steps=3)
        return s + ys.sum()

    ys = scan(step, sequences=[X], outputs_info=[V])
    (finding,) = found([X, V], ys)
    assert finding.loop == "scan_fn/scan_fn"
    given = [np.array([1.0, 2.0]), 0.5]
    right = value([X, V], ys, given, PLAIN)
    assert differs(value([X, V], ys, given, FAST), right)
    mended = so.optimize(([X, V], [ys]), "compile-safe").graph
    np.testing.assert_allclose(value(mended.inputs, mended.outputs[0], given, FAST), right)


def test_twin_a_loop_in_a_body_that_nobody_reads() -> None:
    def step(x: Any, s: Any) -> Any:
        ys = scan(lambda y, w: w + 1, outputs_info=[s], non_sequences=[x], n_steps=3)
        return [s + x, ys.sum()]

    ys, sums = scan(step, sequences=[X], outputs_info=[V, None])
    assert not found([X, V], ys)
    assert found([X, V], sums)


def test_the_graph_stays_as_it_is() -> None:
    output, arguments = MISCOMPILED["a sum of three"]()
    before = str(pytensor.dprint(output, file="str"))
    check((list(arguments), [output]))
    assert str(pytensor.dprint(output, file="str")) == before


@pytest.mark.parametrize("name", MISCOMPILED)
def test_no_rewrite_that_is_asked_changes_what_other_rules_look_at(name: str) -> None:
    output, arguments = MISCOMPILED[name]()
    context = CheckContext(as_graph((list(arguments), [output])).fgraph)
    run_pipeline(context.fgraph, parse("merge-equal"))
    nodes, before = set(context.fgraph.apply_nodes), context.fgraph.dprint(file="str")
    assert list(MiscompiledForms().find(context))
    context.fgraph.check_integrity()
    assert set(context.fgraph.apply_nodes) == nodes
    assert context.fgraph.dprint(file="str") == before


@pytest.mark.parametrize("is_invariant", [True, False])
def test_initial_rows_that_are_lost_once_what_nobody_reads_is_gone(is_invariant: bool) -> None:
    x, v, w, s = pt.dvector("x"), pt.dmatrix("v"), pt.dscalar("w"), pt.dscalar("s")
    rows, *_ = scan(
        lambda x, _, last, s, w: [
            pt.full((3,), w) + (0 if is_invariant else last),
            s + x,
            s * x,
        ],
        sequences=[x],
        outputs_info=[{"initial": v, "taps": [-2, -1]}, s, None],
        non_sequences=[w],
    )
    graph = [x, v, w, s], [rows.owner.inputs[0]]
    function = pytensor.function(*graph, mode=Mode("vm", "fast_run"), on_unused_input="ignore")
    with np.errstate(all="ignore"):
        (value,) = function(np.arange(3.0), np.ones((2, 3)), 2.0, 1.0)
    assert (len(value) < 5) == is_invariant
    assert bool(check(graph, select=["C003"]).findings) == is_invariant


def test_a_loop_inside_whose_sum_is_right_is_not_found() -> None:
    def inside(x, w):
        rows, _ = scan(
            lambda x, h, w: [w, x * 2],
            sequences=[x],
            outputs_info=[pt.zeros(()), None],
            non_sequences=[w],
        )
        return rows.owner.inputs[0].sum()

    matrix, number = pt.dmatrix("m"), pt.dscalar("w")
    found = scan(inside, sequences=[matrix], non_sequences=[number])
    function = pytensor.function([matrix, number], found, mode=Mode("vm", "fast_run"))
    assert function(np.ones((2, 3)), 2.0).tolist() == [6.0, 6.0]
    assert not check(([matrix, number], [found]), select=["C003"]).findings
