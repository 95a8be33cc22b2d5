"""The passes in compilations of a program: switched on, off by default, and gone afterwards."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.compile.io import In
from pytensor.compile.mode import Mode, get_mode, optdb
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph

import scanopt_cli as so
from scanopt_cli.analysis.statistics import Statistics, statistics
from scanopt_cli.errors import PassError
from scanopt_cli.integration.compilation.blocks import Compilation, block_of, innermost
from scanopt_cli.integration.compilation.registering import register
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.mit_mot_to_sit_sot import MitMotToSitSot
from support.compiled_gradients import ARGUMENTS, counts, growth
from support.evaluating import assert_same_outcomes
from support.graph_building import scan

MODES = [get_mode("NUMBA"), Mode("vm", "fast_run"), "FAST_COMPILE", None]
BY_NAME = [
    pytest.param(MODES[0], id="numba", marks=pytest.mark.deep),
    *(
        pytest.param(mode, id=name)
        for mode, name in zip(MODES[1:], ["vm", "FAST_COMPILE", "default"], strict=True)
    ),
]
VM = Mode("vm", "fast_run")


def plain(mode: object) -> list[np.ndarray]:
    return function(*growth(), mode=mode)(*ARGUMENTS)


@pytest.mark.deep
@pytest.mark.parametrize("mode", BY_NAME)
def test_enabled_in_any_mode(mode: object) -> None:
    before = function(*growth(), mode=mode)
    with so.enabled() as done:
        compiled = function(*growth(), mode=mode)
    after = function(*growth(), mode=mode)
    assert [counts(f).mit_mot for f in (before, compiled, after)] == [1, 0, 1]
    assert_same_outcomes(compiled(*ARGUMENTS), before(*ARGUMENTS), rtol=1e-12)
    (compilation,) = done.compilations
    assert (compilation.before.mit_mot, compilation.after.mit_mot) == (1, 0)
    assert "mit-mot-to-sit-sot" in [run.name for run in compilation.passes if run.changed]
    assert compilation.seconds > 0


@pytest.mark.parametrize("mode", BY_NAME[:2])
def test_including_the_tag(mode: Mode) -> None:
    compiled = function(*growth(), mode=mode.including("scanopt"))
    assert counts(compiled).mit_mot == 0
    assert counts(function(*growth(), mode=mode)).mit_mot == 1
    assert_same_outcomes(compiled(*ARGUMENTS), plain(mode), rtol=1e-12)


def test_including_the_tag_inside_of_a_block_runs_once() -> None:
    with so.enabled("remove-unused,mit-mot-to-sit-sot") as done:
        compiled = function(*growth(), mode=VM.including("scanopt"))
    assert counts(compiled).mit_mot == 0
    (compilation,) = done.compilations
    names = [run.name for run in compilation.passes]
    own = ["push-out-sums", "factor-once", "push-out"]
    assert names[:5] == ["remove-unused", "mit-mot-to-sit-sot", *own]


def test_a_mode_can_exclude_the_tag() -> None:
    with so.enabled() as done:
        compiled = function(*growth(), mode=VM.excluding("scanopt"))
    assert (counts(compiled).mit_mot, done.compilations) == (1, ())


@pytest.mark.parametrize("optimizer", [None, "minimum_compile", "merge"])
def test_modes_that_rewrite_nothing_stay_as_they_are(optimizer: str | None) -> None:
    with so.enabled() as done:
        function(*growth(), mode=Mode("vm", optimizer))
    assert done.compilations == ()


def test_rewriting_a_graph_without_compiling_it() -> None:
    _, outputs = growth()
    rewritten = rewrite_graph(outputs, include=["scanopt"])
    assert statistics(pytensor.graph.FunctionGraph(outputs=rewritten, clone=True)).mit_mot == 0


def test_blocks_nest_and_the_innermost_counts() -> None:
    found = []
    with so.enabled() as outer:
        with so.enabled("none") as inner:
            found.append(counts(function(*growth(), mode=VM)).mit_mot)
        found.append(counts(function(*growth(), mode=VM)).mit_mot)
    assert (found, inner.compilations, len(outer.compilations)) == ([1, 0], (), 1)
    assert inner.pipeline == "none"


def test_nothing_is_left_after_an_exception() -> None:
    queries = [[item.name for item in optdb.query("+fast_run").data] for _ in range(2)]
    with pytest.raises(ZeroDivisionError), so.enabled():
        raise ZeroDivisionError
    assert innermost() is None
    assert counts(function(*growth(), mode=VM)).mit_mot == 1
    assert [item.name for item in optdb.query("+fast_run").data] == queries[0] == queries[1]


def test_a_malformed_pipeline_is_an_error_at_once() -> None:
    with pytest.raises(PassError, match="there is no pass"), so.enabled("no-such-pass"):
        raise AssertionError
    assert innermost() is None


def test_blocks_of_threads_end_in_any_order() -> None:
    entered, left = threading.Event(), threading.Event()

    def other() -> None:
        with so.enabled("none"):
            entered.set()
            left.wait()

    thread = threading.Thread(target=other)
    with so.enabled() as first:
        thread.start()
        entered.wait()
    assert innermost() is not first
    left.set()
    thread.join()
    assert innermost() is None


def test_threads_of_a_block_compile_with_the_passes() -> None:
    found = []
    with so.enabled():
        thread = threading.Thread(
            target=lambda: found.append(counts(function(*growth(), mode=VM)).mit_mot)
        )
        thread.start()
        thread.join()
    assert found == [0]


def test_graphs_without_loops_are_left_alone() -> None:
    x = pt.dvector("x")
    with so.enabled() as done:
        f = function([x], x * 2 + x * 2, mode=VM)
    np.testing.assert_array_equal(f([1.0]), [4.0])
    assert done.compilations == ()


def test_a_loop_equal_to_one_in_a_body_that_was_compiled_before_is_rewritten() -> None:
    x, steps = pt.dvector("x"), pt.lvector("steps")

    def last(count: object) -> Variable:
        return scan(lambda state: state * 0.5 + 1, outputs_info=[x], n_steps=count)[-1]

    count = pt.lscalar("count")
    nested = scan(lambda count, _: last(count), sequences=[steps], non_sequences=[x])
    with so.enabled("default"):
        before = function([count, x], last(count), mode=VM)
        function([steps, x], nested, mode=VM)
        after = function([count, x], last(count), mode=VM)
    assert len(after.maker.fgraph.apply_nodes) == len(before.maker.fgraph.apply_nodes)
    with pytest.raises(IndexError):
        after(0, [1.0])


def test_registering_twice_changes_nothing() -> None:
    names = [item.name for item in optdb.query("+fast_run", "+scanopt").data]
    register()
    assert [item.name for item in optdb.query("+fast_run", "+scanopt").data] == names
    assert [name for name in names if name and "scanopt" in name] == [
        "scanopt_loops",
        "scanopt_loops_when_enabled",
        "scanopt_unseal",
        "scanopt_trims",
        "scanopt_trims_when_enabled",
        "scanopt_merge_conditionals",
        "scanopt_keep_branches_lazy",
    ]


def test_what_is_done_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "scanopt_cli.compiling"), so.enabled():
        function(*growth(), mode=VM)
    assert any("mit-mot-to-sit-sot" in record.getMessage() for record in caplog.records)
    assert any(record.getMessage().startswith("loops: 2 Scans to 2") for record in caplog.records)
    assert all(record.levelno == logging.INFO for record in caplog.records)


@pytest.mark.parametrize("error", [ValueError("broken"), AssertionError("broken")])
@pytest.mark.parametrize("how", ["warn", "raise"])
def test_errors_of_passes_are_handled_by_pytensor(
    error: Exception, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> bool:
        raise error

    monkeypatch.setattr(MitMotToSitSot, "rewrites", fail)

    def compile_it() -> Callable:
        with so.enabled(), pytensor.config.change_flags(on_opt_error=how):
            return function(*growth(), mode=VM)

    if how == "raise":
        with pytest.raises(Exception, match="broken"):
            compile_it()
    else:
        assert_same_outcomes(compile_it()(*ARGUMENTS), plain(VM), rtol=1e-12)
        assert "broken" in caplog.text
    assert innermost() is None


@pytest.mark.parametrize("mode", BY_NAME[:3])
def test_shared_variables_updates_and_inputs_that_are_overwritten(mode: object) -> None:
    """What stands around a graph stays: updates, unused inputs, aliased and mutable ones."""

    def compiled() -> tuple[Callable, object]:
        x, unused = pt.dvector("x"), pt.dscalar("unused")
        total = pytensor.shared(np.zeros(3), name="total")
        trace = scan(
            lambda state, total: state * 0.5 + total,
            outputs_info=[x],
            non_sequences=[total],
            n_steps=4,
        )
        last = trace[-1]
        slope = pt.grad(last.sum(), x)
        inputs = [In(x, mutable=True, borrow=True), unused]
        f = function(
            inputs,
            [last, last, slope, x],
            updates={total: total + last},
            mode=mode,
            on_unused_input="ignore",
        )
        return f, total

    plain_function, plain_total = compiled()
    with so.enabled() as done:
        clean_function, clean_total = compiled()
    assert len(done.compilations) == 1
    for _ in range(3):
        values = [f(np.arange(3.0), 1.0) for f in (clean_function, plain_function)]
        assert_same_outcomes(*values, rtol=1e-12)
    assert_same_outcomes([clean_total.get_value()], [plain_total.get_value()], rtol=1e-12)


READS: dict[str, Callable] = {
    "last": lambda ys: ys[-1],
    "from the third": lambda ys: ys[2:],
    "in the middle, and last": lambda ys: ys[1:4].sum() + ys[-1],
    "reversed": lambda ys: ys[::-1][:3],
    "first and last": lambda ys: ys[0] * ys[-1],
    "end and start": lambda ys: pt.concatenate([ys[-3:], ys[:2]]),
}


@pytest.mark.tiered(every=7)
@pytest.mark.parametrize("read", READS)
def test_trims_of_pytensor_and_of_ours_go_together(read: str) -> None:
    _check_trims(READS[read], VM)


@pytest.mark.deep
def test_trims_go_together_where_nothing_is_preallocated() -> None:
    _check_trims(READS["reversed"], MODES[0])


def _check_trims(read: Callable, mode: object) -> None:
    x, n = pt.dscalar("x"), pt.lscalar("n")
    for steps, inputs, arguments in ((6, [x], [1.5]), (n, [x, n], [1.5, 6])):
        ys = scan(lambda y: pt.cos(y), outputs_info=[x], n_steps=steps)
        value = read(ys)
        outputs = [value, pt.grad(value.sum(), x)]
        expected = function(inputs, outputs, mode="FAST_COMPILE")(*arguments)
        with so.enabled():
            f = function(inputs, outputs, mode=mode)
        assert_same_outcomes(f(*arguments), expected, rtol=1e-12)


def test_tags_that_a_mode_excludes_are_left_out_of_bodies() -> None:
    x = pt.dvector("x")
    ys = scan(lambda y: pt.log(pt.sum(pt.exp(y), keepdims=True)) + y, outputs_info=[x], n_steps=3)
    with so.enabled() as done:
        for mode in (VM, VM.excluding("canonicalize", "stabilize", "specialize")):
            function([x], pt.grad(ys[-1].sum(), x), mode=mode)
    changed = [{run.name for run in c.passes if run.changed} for c in done.compilations]
    assert ["simplify" in names for names in changed] == [True, False]


def test_a_compilation_stays_with_its_block_if_a_thread_enters_another() -> None:
    graph = FunctionGraph(outputs=[pt.dscalar()], clone=False)
    with so.enabled() as first:
        done = Compilation(before=Statistics(), after=Statistics(), passes=(), seconds=0.0)
        first.record(graph, done)
        with so.enabled() as second:
            assert block_of(graph) is first
            assert block_of(FunctionGraph(outputs=[pt.dscalar()], clone=False)) is second
    assert block_of(graph) is None
