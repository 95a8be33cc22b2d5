"""The order of a graph is computed once for each form that it takes."""

from __future__ import annotations

import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.ir.remembered_order import RememberedOrder, notes_on, remembered_order
from support.graph_building import graph_of

X = pt.dvector("x")


def _graph() -> FunctionGraph:
    return graph_of(pt.exp(pt.sin(X) + 1).sum(), pt.sin(X) * 2).fgraph


def test_the_order_is_that_of_the_graph_after_each_change() -> None:
    fgraph = _graph()
    with remembered_order(fgraph):
        assert fgraph.toposort() == FunctionGraph.toposort(fgraph)
        node = fgraph.toposort()[-1]
        fgraph.change_node_input(node, 0, pt.cos(X), import_missing=True)
        assert fgraph.toposort() == FunctionGraph.toposort(fgraph)
        fgraph.replace(fgraph.outputs[0], X.sum(), import_missing=True)
        assert fgraph.toposort() == FunctionGraph.toposort(fgraph)
    assert "toposort" not in vars(fgraph)


def test_it_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fgraph, computed = _graph(), 0
    original = FunctionGraph.toposort

    def counting(self: FunctionGraph) -> list[Apply]:
        nonlocal computed
        computed += 1
        return original(self)

    monkeypatch.setattr(FunctionGraph, "toposort", counting)
    with remembered_order(fgraph):
        fgraph.toposort().clear()  # of the caller alone
        assert len(fgraph.toposort()) == len(fgraph.apply_nodes)
        assert computed == 1
        fgraph.replace(fgraph.outputs[0], X.sum(), import_missing=True)
        fgraph.toposort()
        assert computed == 2


def test_a_copy_remembers_its_own_order() -> None:
    fgraph = _graph()
    fgraph.attach_feature(RememberedOrder())
    fgraph.toposort()
    copy, _ = fgraph.clone_get_equiv(attach_feature=True)
    assert copy.toposort() == FunctionGraph.toposort(copy)
    assert set(copy.toposort()) == set(copy.apply_nodes)


def test_notes_are_of_the_graph_as_it_is() -> None:
    fgraph = _graph()
    notes_on(fgraph)["size"] = 1
    assert not notes_on(fgraph)
    with remembered_order(fgraph):
        notes_on(fgraph)["size"] = len(fgraph.apply_nodes)
        fgraph.toposort()
        assert notes_on(fgraph)
        fgraph.replace(fgraph.outputs[0], X.sum(), import_missing=True)
        assert not notes_on(fgraph)
        notes_on(fgraph)["size"] = len(fgraph.apply_nodes)
    assert not notes_on(fgraph)
