"""Each of PyTensor's rewrites alone, on generated loops, and on what scanopt makes of them.

On the former, those that are known to be wrong are left out: their reproducers are in this
directory. On the latter none is: what `optimize` returns is right whatever PyTensor does to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from pytensor.compile.aliasing import add_supervisor_to_fgraph
from pytensor.compile.io import In
from pytensor.compile.mode import AddDestroyHandler, Mode, PrintCurrentFunctionGraph, optdb
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import (
    GraphRewriter,
    NodeRewriter,
    SequentialGraphRewriter,
    dfs_rewriter,
)
from pytensor.graph.rewriting.db import RewriteDatabase
from pytensor.scan.rewriting.db import scan_eqopt1, scan_eqopt2, scan_seqopt1

import scanopt_cli as so
from support.compiled_ways import assert_close, compiled, plain_values, right_sums
from support.generated.arguments import Value
from support.generated.strategies import GeneratedScan, scan_graphs
from support.tiers import deep, examples

UNSOUND = {
    "scan_merge": "test_merging",
    "scan_merge_inouts": "test_merging",
    "scan_push_out_add": "test_pushing_out",
    "scan_push_out_non_seq": "test_pushing_out",
    "scan_push_out_seq": "test_pushing_out",
    "scan_reduce_nsteps": "test_trimming",
    "scan_reduce_trace_no_prealloc": "test_trimming",
    "scan_reduce_trace_prealloc": "test_trimming",
    "local_dimshuffle_subtensor": "test_beside_loops",
    "sidestep_unused_rng_consumer": "test_beside_loops",
}
"""Rewrites that are wrong for some loops as users write them, and where that is reproduced."""
OTHER_VALUES = {"sidestep_unused_rng_consumer"}
"""Those that PyTensor tags as changing values."""
_OTHERS = {"ofg_inner_graph", "jax_shape_parameter_as_tuple"}
_EXAMPLES = examples(4, 40)


@cache
def rewriters() -> dict[str, GraphRewriter]:
    """Every rewriter of PyTensor's, by its name, in-placing included."""
    found: dict[str, GraphRewriter] = {}
    phases = ("canonicalize", "stabilize", "specialize", "uncanonicalize")
    databases = [optdb, scan_eqopt1, scan_eqopt2, scan_seqopt1, *(optdb[name] for name in phases)]
    for database in databases:
        for name, entries in database.__db__.items():
            for entry in entries:
                # `ofg_inner_graph` compiles inner graphs, by a mode that it is part of, and
                # `jax_shape_parameter_as_tuple` makes an Op that JAX alone can run.
                is_other = name.startswith("scanopt") or name in _OTHERS
                is_other = is_other or isinstance(entry, PrintCurrentFunctionGraph)
                if isinstance(entry, RewriteDatabase) or entry.name != name or is_other:
                    continue
                if isinstance(entry, NodeRewriter):
                    entry = dfs_rewriter(entry, ignore_newtrees=True)
                found[name] = SequentialGraphRewriter(AddDestroyHandler(), entry)
    return found


def changes(inputs: Sequence[Variable], outputs: Sequence[Variable], by: GraphRewriter) -> bool:
    """Whether a rewriter has anything to do."""
    fgraph = FunctionGraph(list(inputs), list(outputs), clone=True)
    add_supervisor_to_fgraph(fgraph, [In(variable) for variable in fgraph.inputs])
    before = set(fgraph.apply_nodes)
    by.rewrite(fgraph)
    return fgraph.apply_nodes != before


def assert_kept(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    arguments: Sequence[Sequence[Value]],
    but: Sequence[str],
) -> None:
    """Check that each rewriter alone keeps the values, but those that are named."""
    cases: list[Any] | None = None
    for name, rewriter in rewriters().items():
        if name in but or not changes(inputs, outputs, rewriter):
            continue
        if cases is None:
            cases = list(plain_values(inputs, outputs, arguments))
        function = compiled(inputs, outputs, Mode("vm", rewriter))
        for values, wanted in cases:
            with np.errstate(all="ignore"):
                got = function(*deepcopy(list(values)))
            for position, (right, value) in enumerate(zip(wanted, got, strict=True)):
                assert_close(right, value, f"{name}, output {position} of {values}")


@pytest.fixture(autouse=True, scope="module")
def _right_sums() -> Iterator[None]:
    with right_sums():
        yield


def test_what_is_known_to_be_wrong_is_there() -> None:
    assert rewriters().keys() >= UNSOUND.keys()
    assert all(Path(__file__).with_name(f"{module}.py").exists() for module in UNSOUND.values())
    assert len(rewriters()) > 250


@pytest.mark.deep
@settings(max_examples=_EXAMPLES)
@given(generated=scan_graphs(generators=True))
def test_loops_as_users_write_them(generated: GeneratedScan) -> None:
    assert_kept(generated.inputs, generated.outputs, generated.arguments, list(UNSOUND))


@pytest.mark.deep
@pytest.mark.parametrize("preset", ["default", *deep("grad")])
@settings(max_examples=_EXAMPLES)
@given(generated=scan_graphs(generators=True))
def test_loops_as_scanopt_returns_them(generated: GeneratedScan, preset: str) -> None:
    graph = so.optimize((generated.inputs, generated.outputs), preset).graph
    assert_kept(graph.inputs, graph.outputs, generated.arguments, list(OTHER_VALUES))
