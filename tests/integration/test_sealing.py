"""Loops that PyTensor's own rewrites do not see, until they are to run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.compile.debug.debugmode import DebugMode
from pytensor.compile.mode import Mode, optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scan.op import Scan

import scanopt_cli as so
from scanopt_cli.analysis.inspection import inspect_graph
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.integration.compilation.sealing import SealedScan, seal, unseal
from scanopt_cli.ir.graph import from_io
from scanopt_cli.passes.of_scans.compile_safe.unit_lengths import loop_of_narrower
from support.compiled_gradients import ARGUMENTS, growth
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import graph_of, scan
from support.unit_lengths import FORMS, VALUES

VM = Mode("vm", "fast_run").excluding("fusion")


def kinds(fgraph: FunctionGraph) -> list[type]:
    return [type(n.op) for n in fgraph.toposort() if isinstance(n.op, Scan | SealedScan)]


def test_unsealing_undoes_sealing() -> None:
    fgraph = graph_of(*growth()[1]).fgraph
    before = digest(fgraph)
    seal(fgraph)
    assert kinds(fgraph) == [SealedScan, SealedScan]
    unseal(fgraph)
    assert kinds(fgraph) == [Scan, Scan]
    assert digest(fgraph) == before


def test_pytensor_does_not_rewrite_sealed_loops() -> None:
    fgraph = graph_of(*growth()[1]).fgraph
    seal(fgraph)
    sealed = [node.op for node in fgraph.toposort() if isinstance(node.op, SealedScan)]
    optdb.query(RewriteDatabaseQuery(include=["fast_run"], exclude=["minimum_compile"])).rewrite(
        fgraph
    )
    left = [node.op for node in fgraph.toposort() if isinstance(node.op, SealedScan)]
    assert left == sealed


def test_shapes_of_sealed_loops_are_known() -> None:
    """So that what only asks for a length needs no loop."""
    n, x = pt.lscalar("n"), pt.dscalar("x")
    ys = scan(lambda y: y * 2, outputs_info=[x], n_steps=n)
    with so.enabled():
        compiled = function([n, x], ys.shape[0], mode=VM)
    assert kinds(compiled.maker.fgraph) == []
    assert compiled(7, 1.0) == 7


@pytest.mark.parametrize("leave_out", ["scanopt_trims", "scanopt_loops", "scan"])
def test_nothing_stays_sealed_whatever_a_mode_leaves_out(leave_out: str) -> None:
    inputs, outputs = growth()
    wanted = evaluate(inputs, outputs, [np.asarray(value) for value in ARGUMENTS])
    mode = VM.including("scanopt").excluding(leave_out)
    compiled = function(inputs, outputs, mode=mode)
    assert set(kinds(compiled.maker.fgraph)) == {Scan}
    assert_same_outcomes(wanted, compiled(*ARGUMENTS))


def test_rewritten_graphs_have_no_sealed_loops() -> None:
    _, outputs = growth()
    rewritten: Any = rewrite_graph(outputs, include=["fast_run", "scanopt"])
    assert set(kinds(FunctionGraph(outputs=rewritten, clone=True))) == {Scan}


def test_loops_that_overwrite_their_inputs_stay_unsealed() -> None:
    compiled = function(*growth(), mode=VM)
    fgraph = compiled.maker.fgraph
    assert any(node.op.destroy_map for node in fgraph.toposort() if isinstance(node.op, Scan))
    seal(fgraph)
    assert not all(kind is SealedScan for kind in kinds(fgraph))


def test_every_mode_unseals_what_it_is_to_run() -> None:
    fgraph = from_io(*growth()).fgraph
    wanted = evaluate(fgraph.inputs, fgraph.outputs, [np.asarray(value) for value in ARGUMENTS])
    seal(fgraph)
    compiled = function(fgraph.inputs, fgraph.outputs, mode=Mode("vm", None))
    assert_same_outcomes(wanted, compiled(*ARGUMENTS))


def test_an_error_of_a_pass_leaves_the_loops_to_pytensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> bool:
        raise ValueError("broken")

    monkeypatch.setattr("scanopt_cli.passes.merge_equal.MergeEqual.rewrites", fail)
    with so.enabled():
        compiled = function(*growth(), mode=VM)
    assert set(kinds(compiled.maker.fgraph)) == {Scan}


CUT_OFF = Mode("vm", RewriteDatabaseQuery(include=["fast_run"], position_cutoff=1.5))


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize(
    "mode",
    [CUT_OFF, VM.excluding("minimum_compile"), Mode("vm", "stabilize")],
    ids=["cut off", "no minimum", "stabilize"],
)
@pytest.mark.parametrize("tags", [[], ["scanopt"]], ids=["enabled", "including"])
def test_loops_are_sealed_only_where_they_will_be_unsealed(mode: Mode, tags: list[str]) -> None:
    inputs, outputs = growth()
    wanted = evaluate(inputs, outputs, [np.asarray(value) for value in ARGUMENTS])
    with so.enabled():
        compiled = function(inputs, outputs, mode=mode.including(*tags))
    assert set(kinds(compiled.maker.fgraph)) == {Scan}
    assert_same_outcomes(wanted, compiled(*ARGUMENTS))


def test_debug_mode_compiles_as_ever() -> None:
    x = pt.dscalar("x")
    ys = scan(lambda y, w: y * w, outputs_info=[x], non_sequences=[x], n_steps=3)
    with so.enabled() as done:
        compiled = function([x], ys[-1], mode=DebugMode(check_c_code=False))
    assert compiled(2.0) == 16.0
    assert done.compilations == ()


def rows_of(fgraph: FunctionGraph) -> str | None:
    (loop,) = inspect_graph(fgraph).scans
    return loop.slots[0].rows


def test_a_loop_goes_through_the_passes_in_every_graph_that_it_is_in() -> None:
    n, x = pt.lscalar("n"), pt.dscalar("x")
    states = scan(lambda y: y * 2 + 1, outputs_info=[x], n_steps=n)
    rows = []
    with so.enabled():
        function([n, x], states, mode=VM)
        for _ in range(2):
            compiled = function([n, x], states[-1], mode=VM)
            assert compiled(5, 1.0) == 63.0
            rows.append(rows_of(compiled.maker.fgraph))
    assert rows == ["min(1,n)+1"] * 2


def test_where_results_are_written_in_place_is_up_to_the_linker() -> None:
    """A mode without PyTensor's own trimming still runs in Python, where they are."""
    x, n = pt.dscalar("x"), pt.lscalar("n")
    last, first, second = scan(lambda y: (y + 1, y, y), outputs_info=[x, None, None], n_steps=n)
    outputs = [last[-1], first, second]
    wanted = evaluate([x, n], outputs, [np.asarray(1.0), np.asarray(3)])
    with so.enabled():
        compiled = function([x, n], outputs, mode=VM.excluding("scan_reduce_trace_prealloc"))
    assert_same_outcomes(wanted, compiled(1.0, 3))


@pytest.mark.parametrize("preset", ["default", "grad", "loop"])
@pytest.mark.parametrize("subjects", [1, 3])
def test_what_a_sealed_loop_reads_may_turn_out_to_be_narrower(preset: str, subjects: int) -> None:
    """PyTensor folds ``arange(choices.shape[1])`` to an array of known length."""
    choices = pt.tensor("choices", shape=(None, subjects), dtype="int64")

    def step(choice: Any, values: Any, every: Any) -> Any:
        return values[every, choice].inc(0.5 * (1 - values[every, choice]))

    start = pt.full((subjects, 3), 0.5)
    every = pt.arange(choices.shape[1])
    last = scan(step, sequences=[choices], outputs_info=[start], non_sequences=[every])[-1]
    with so.enabled(preset):
        compiled = function([choices], last, mode=VM)
    assert SealedScan not in kinds(compiled.maker.fgraph)
    given = np.array([[0], [2], [2]] * subjects).reshape(-1, subjects)
    plain = function([choices], last, mode=Mode("vm", None))
    np.testing.assert_allclose(compiled(given), plain(given))


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"a state"}))  # which nothing compiles
def test_narrower_inputs_of_each_kind(form: str) -> None:
    graph = FORMS[form]()
    values = [np.asarray(VALUES[str(v.name)]) for v in graph.inputs]
    plain = function(graph.inputs, graph.outputs, mode=Mode("vm", None))
    with so.enabled("default"):
        compiled = function(graph.inputs, graph.outputs, mode=VM)
    assert SealedScan not in kinds(compiled.maker.fgraph)
    for new, old in zip(compiled(*values), plain(*values), strict=True):
        np.testing.assert_allclose(new, old)


def test_a_loop_that_cannot_declare_what_its_inputs_do_reads_copies() -> None:
    v, w = pt.dvectors("v", "w")
    xs = scan(lambda x, w: x * w.sum(), outputs_info=[v], non_sequences=[w], n_steps=3)
    (node,) = (n for n in graph_of(xs).fgraph.apply_nodes if isinstance(n.op, Scan))
    kinds_of_inputs = [variable.type for variable in node.inputs]
    buffer = node.inputs[1]
    narrow: Any = pt.specify_shape(buffer, (4, 1))
    inputs = [node.inputs[0], narrow, *node.inputs[2:]]
    made = loop_of_narrower(node.op, inputs, kinds_of_inputs, node.outputs)
    got = function([v, w], list(made), mode=Mode("vm", None))([2.0], [1.0, 2.0])
    np.testing.assert_allclose(got[0], [[2.0], [6.0], [18.0], [54.0]])
