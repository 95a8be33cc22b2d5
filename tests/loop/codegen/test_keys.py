"""Graphs whose code differs have different keys, though a loop of them computes the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch import basic
from pytensor.link.numba.dispatch.basic import numba_funcify
from pytensor.scan.op import Scan

from scanopt_cli.equivalence import sources
from scanopt_cli.loop.codegen.keys import key_of
from support.foreign_ops import Opaque
from support.graph_building import scan


def _of_taps(*taps: int) -> FunctionGraph:
    """Return a graph of one Scan over inputs of equal types: a state for each of ``taps``."""
    start = pt.vector("start", shape=(3,))
    traces = scan(
        lambda *states: [pt.exp(state) for state in states],
        outputs_info=[{"initial": start[:-tap], "taps": [tap]} for tap in taps],
        n_steps=3,
    )
    found: Any = next(
        v.owner for v in ancestors(traces) if v.owner is not None and isinstance(v.owner.op, Scan)
    )
    inputs = [pt.lscalar("n_steps"), *(pt.vector(f"buffer{i}") for i in range(len(taps)))]
    return FunctionGraph(inputs, found.op.make_node(*inputs).outputs, clone=False)


def test_the_order_of_a_loops_states_counts() -> None:
    """The two compute the same, but for what their outputs are: of which there are two here."""
    assert key_of(_of_taps(-2, -3)) == key_of(_of_taps(-2, -3))
    assert key_of(_of_taps(-2, -3)) != key_of(_of_taps(-3, -2))


def test_what_another_package_has_compiled_for_an_op_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def registered(function: Any) -> str | None:
        functions = SimpleNamespace(registry={**dict(numba_funcify.registry), Opaque: function})
        monkeypatch.setattr(basic, "numba_funcify", functions)
        return key_of(_of_taps(-2, -3))

    def of_this_file(*_: Any, **__: Any) -> None:
        pass

    def of_program(*_: Any, **__: Any) -> None:
        pass

    of_program.__module__ = "__main__"
    try:
        keys = [key_of(_of_taps(-2, -3)), registered(of_this_file)]
        sources.source_of.cache_clear()
        monkeypatch.setattr(sources, "stamp", lambda _: (0, 0))
        keys.append(registered(of_this_file))
        assert None not in keys
        assert len(set(keys)) == 3
        assert registered(of_program) is None  # another process may have another one
    finally:
        sources.source_of.cache_clear()
