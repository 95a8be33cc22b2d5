"""Generated loops are read as they were rewritten, and a small change makes another key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytensor
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.io import In, SymbolicOutput
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.linker import NumbaLinker

import scanopt_cli as so
from scanopt_cli.integration.compilation import keeping
from scanopt_cli.integration.compilation.rewriting_key import rewriting_key
from scanopt_cli.ir.inner_graphs import body_of, with_body
from scanopt_cli.loop.codegen.keys import key_of
from scanopt_cli.store import Store
from support.compiled_ways import VM
from support.generated.building import build
from support.generated.strategies import GeneratedScan, scan_graphs
from support.tiers import examples

type Graph = tuple[Sequence[Variable], Sequence[Variable]]
type Change = tuple[Variable, Variable]

_NUMBA = Mode(NumbaLinker(), "fast_run")


def _values(graph: Graph, arguments: Any) -> list[Any]:
    function = pytensor.function(*graph, mode=VM, on_unused_input="ignore")
    try:
        return [np.array(value) for value in function(*arguments)]
    except (AssertionError, IndexError, ValueError) as error:  # of a loop of too few steps
        return [type(error)]


@pytest.mark.tiered
@settings(max_examples=examples(3, 40))
@given(generated=scan_graphs())
def test_what_is_read_computes_the_same(generated: GeneratedScan) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        store = Store(Path(directory) / "kept", 1 << 30)
        patch.setattr(keeping, "user_store", lambda: store)
        patch.setenv("SCANOPT_CACHE", "on")
        for preset in ("grad", "loop"):
            found = []
            for graph in (build(generated.program), build(generated.program)):
                with so.enabled(preset):
                    found.append(_values(graph, generated.arguments[0]))
            for first, second in zip(*found, strict=True):
                np.testing.assert_equal(first, second)


def _keys(graph: Graph) -> tuple[str | None, ...]:
    """Return the keys of a graph's rewriting and of its code."""
    fgraph = FunctionGraph(*graph, clone=True)
    inputs = [In(v) for v in fgraph.inputs]
    outputs = [SymbolicOutput(v) for v in fgraph.outputs]
    passes = "loop", frozenset[str]()
    rewritten = [rewriting_key(fgraph, mode, inputs, outputs, passes) for mode in (VM, _NUMBA)]
    return (*rewritten, key_of(fgraph))


def _changes(graph: FunctionGraph) -> Iterator[Change]:
    """Yield small changes of a graph: a variable, and what takes its place."""
    for node in graph.toposort():
        op: Any = node.op
        for i, one in enumerate(node.inputs):
            if isinstance(one, Constant) and isinstance(one.data, np.ndarray) and one.data.size:
                other = np.asarray(one.data ^ True if one.dtype == "bool" else one.data + 1)
                if not np.array_equal(other, one.data, equal_nan=other.dtype.kind in "fc"):
                    changed = type(one)(one.type, other.astype(one.dtype), name=one.name)
                    given = [*node.inputs[:i], changed, *node.inputs[i + 1 :]]
                    yield from _applied(node, given, op)
            for j, other_input in enumerate(node.inputs[:i]):
                if one.type == other_input.type and not equal_computations([one], [other_input]):
                    swapped = list(node.inputs)
                    swapped[i], swapped[j] = swapped[j], swapped[i]
                    yield from _applied(node, swapped, op)
        body = body_of(op)
        if body is not None:
            inside = body.unfreeze()
            for change in _changes(inside):
                outputs = _changed(inside.outputs, change)
                if outputs is not None:
                    changed_body = FunctionGraph(inside.inputs, outputs, clone=True)
                    yield from _applied(node, node.inputs, with_body(op, changed_body))
        for one, other in pairwise(node.outputs):
            if one.type == other.type:
                yield one, other


def _applied(node: Apply, inputs: Sequence[Variable], op: Any) -> Iterator[Change]:
    try:
        made = op.make_node(*inputs)
    except (TypeError, ValueError):
        return
    for old, new in zip(node.outputs, made.outputs, strict=True):
        if old.type == new.type:
            yield old, new


def _changed(outputs: Sequence[Variable], change: Change) -> list[Variable] | None:
    """Return the outputs of a changed graph, if they depend on it and are of the same types."""
    old, new = change
    if old not in ancestors(outputs):
        return None
    changed = clone_replace(outputs, {old: new}, rebuild_strict=False)
    same = [v.type for v in changed] == [v.type for v in outputs]
    return list(changed) if same else None


@pytest.mark.tiered
@settings(max_examples=examples(3, 60))
@given(generated=scan_graphs(), data=st.data())
def test_a_small_change_is_another_key(generated: GeneratedScan, data: st.DataObject) -> None:
    inputs, outputs = build(generated.program)
    keys = _keys((inputs, outputs))
    assert keys == _keys(build(generated.program))
    changes = list(_changes(FunctionGraph(inputs, outputs, clone=False)))
    for change in data.draw(st.lists(st.sampled_from(changes), max_size=8)) if changes else ():
        changed = _changed(outputs, change)
        if changed is not None:
            for one, other in zip(keys, _keys((inputs, changed)), strict=True):
                assert one is None or one != other, change
