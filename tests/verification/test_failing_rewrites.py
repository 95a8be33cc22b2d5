"""`verify` tells which of PyTensor's rewrites fail on the second graph, and not on the first."""

from __future__ import annotations

from typing import Any

import pytest

import scanopt_cli as so
from scanopt_cli.reports.verify_report import notes, summary
from scanopt_cli.verification.result import DifferenceKind, Verdict
from support.graph_building import optimized
from support.unit_lengths import FORMS

pytestmark = pytest.mark.usefixtures("evaluated_here")

REFUSED = FORMS["an invariant of a step that is one long"]()
SAFE = optimized(REFUSED, "compile-safe")[0]
_TOLD = "compiled by vm: PyTensor's scan_push_out_non_seq fails on the second graph, and not"


def test_a_rewrite_that_fails_on_the_second_graph_is_a_difference() -> None:
    found = so.verify(SAFE, REFUSED, modes="vm", runs=2)
    assert (found.verdict, found.runs) == (Verdict.DIFFERS, 2)
    assert {item.kind for item in found.differences} == {DifferenceKind.REWRITE_FAILS}
    assert {(item.mode, item.run, item.output) for item in found.differences} == {
        ("vm", None, None)
    }
    errors = {item.rewrite: item.b for item in found.differences}
    assert "not compatible with its corresponding loop function" in errors["scan_push_out_non_seq"]
    assert summary(found) == "differs: 1 failing rewrite of PyTensor's"
    assert any(note.startswith(_TOLD) for note in notes(found))


@pytest.mark.parametrize(
    "graphs", [(REFUSED, SAFE), (REFUSED, REFUSED), (SAFE, SAFE)], ids=["first", "both", "neither"]
)
def test_what_fails_on_the_first_graph_as_well_is_none(graphs: tuple[Any, Any]) -> None:
    assert so.verify(*graphs, modes="vm", runs=2).verdict is Verdict.IDENTICAL


def test_nothing_is_compiled_to_find_out_if_that_is_not_wanted() -> None:
    assert so.verify(SAFE, REFUSED, modes="plain", runs=2).ok
