"""`optimize` runs until nothing changes: of generated graphs, and of passes that enable others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytensor.tensor as pt
import pytest
from hypothesis import given, reject, settings
from pytensor.graph.fg import FunctionGraph

import scanopt_cli as so
from scanopt_cli.errors import PassError
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.pipeline.optimizing import Snapshot
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import graph_of
from support.settling import assert_settled
from support.tiers import examples

x = pt.dscalar("x")


@pytest.mark.tiered
@settings(max_examples=examples(8, 50))
@given(generated=scan_graphs(generators=True))
def test_generated_graphs_settle(generated: GeneratedScan) -> None:
    for preset in ("default", "grad", "loop"):
        try:
            done = so.optimize((generated.inputs, generated.outputs), preset)
        except PassError as error:
            if "PyTensor confuses" not in str(error):
                raise
            reject()  # an equal body of an earlier example had the other zero
        assert_settled(done, preset)


def test_lengths_that_are_declared_at_the_end_let_passes_do_more() -> None:
    """A slice does not know that it has one row until it is made anew: its last two are itself."""
    v, rows = pt.dvector("v"), pt.dmatrix("rows")
    fgraph = FunctionGraph([v, rows], [rows[1:][-2:]], clone=False)
    fgraph.replace(rows, pt.alloc(v, 2, v.shape[0]))
    done = so.optimize(([v], fgraph.outputs), "grad")
    assert done.graph.fgraph.outputs[0].type.shape[0] == 1
    assert_settled(done, "grad")


@dataclass(frozen=True)
class _Count(Pass):
    """Add 1 to the output if it has none added, or several, and so on up to ``most``."""

    most: int = 3

    name: ClassVar[str] = "count"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        (old,) = context.fgraph.outputs
        if len(context.fgraph.apply_nodes) < self.most:
            yield Rewrite({old: pt.exp(old)})


@dataclass(frozen=True)
class _Drop(Pass):
    """A phase of its own, which takes back what stands before it, down to one node."""

    name: ClassVar[str] = "drop"
    starts_phase: ClassVar[bool] = True

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        (old,) = context.fgraph.outputs
        if len(context.fgraph.apply_nodes) > 1:
            yield Rewrite({old: old.owner.inputs[0]})


def test_phases_that_undo_each_other_change_nothing_in_the_end() -> None:
    seen: list[Snapshot] = []
    done = so.optimize(graph_of(pt.exp(x)), [_Count(), _Drop()], watch=seen.append)
    assert len(done.graph.fgraph.apply_nodes) == 1
    assert not done.changed
    assert not any(run.changed for run in done.passes)


def test_what_later_runs_undo_is_not_shown() -> None:
    """The second time, nothing is left of what the passes did, so nobody is told."""
    seen: list[str] = []
    done = so.optimize(
        graph_of(pt.sin(x)), [_Count(), _Drop()], watch=lambda one: seen.append(one.pass_name)
    )
    first = list(seen)
    assert_settled(done, [_Count(), _Drop()])
    assert first == ["count", "count", "drop", "drop"]


def test_passes_are_not_repeated_beyond_a_limit() -> None:
    done = so.optimize(graph_of(pt.exp(x)), [_Count()], limit=1)
    assert sum(run.rewrites for run in done.passes) == 1
