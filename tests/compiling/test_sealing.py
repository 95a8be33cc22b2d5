"""Loops that PyTensor's own rewrites do not see, until they are to run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from loops import ARGUMENTS, growth
from pytensor import function
from pytensor.compile.mode import Mode, optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scan.op import Scan

import scanopt_cli as so
from evaluating import assert_same_outcomes, evaluate
from graph_building import graph_of, scan
from scanopt_cli.compiling.sealing import SealedScan, seal, unseal
from scanopt_cli.graphs.graph import from_io
from scanopt_cli.identity.canonical import digest

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

    monkeypatch.setattr("scanopt_cli.passes.merge_equal.MergeEqual.run", fail)
    with so.enabled():
        compiled = function(*growth(), mode=VM)
    assert set(kinds(compiled.maker.fgraph)) == {Scan}
