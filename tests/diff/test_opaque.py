"""Ops without a value to compare: compared by identity or state, with a note, and never equal."""

from __future__ import annotations

from collections.abc import Callable

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op

from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import GraphLike
from scanopt_cli.reports import as_markdown
from scanopt_cli.reports.change_text import sentence
from scanopt_cli.reports.diff_report import diff_report
from support.foreign_ops import Opaque
from support.recurrences import tensor
from support.telling import CHANGED, notes_of, only_change


def closure(factor: float) -> Callable[[Variable], Variable]:
    return lambda value: value * factor


def applied(op: Op) -> GraphLike:
    x = tensor("x")
    return [x], [pt.exp(op(x))]


def in_a_loop(op: Op) -> GraphLike:
    x = tensor("x", 2)
    return [x], [pytensor.scan(op, x, name="loop", return_updates=False)]


MAKERS = {
    "an object": lambda: Opaque(object()),
    "a closure": lambda: Opaque(closure(2.0)),
    "a function of a user": lambda: FromFunctionOp(closure(2.0), [pt.dvector], [pt.dvector], None),
}


@pytest.mark.parametrize("where", [applied, in_a_loop])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_two_that_look_the_same_are_a_change_with_a_note(
    make: Callable[[], Op], where: Callable[[Op], GraphLike]
) -> None:
    found = diff(where(make()), where(make()))
    assert not found.same
    (change,) = found.changes
    assert change.kind is CHANGED
    assert "is another" in sentence(change)
    (note,) = found.notes
    assert note.startswith("compared by identity")
    assert note in as_markdown.render(diff_report(found, stands_alone=True)).replace("\\", "")


@pytest.mark.parametrize("where", [applied, in_a_loop])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_one_is_the_same_as_itself_with_a_note(
    make: Callable[[], Op], where: Callable[[Op], GraphLike]
) -> None:
    op = make()
    found = diff(where(op), where(op))
    assert found.same
    assert found.changes == ()
    assert len(found.notes) == 1


def test_a_state_that_has_a_value_is_told_by_it() -> None:
    assert diff(applied(Opaque(3)), applied(Opaque(3))).same
    change = only_change(applied(Opaque(3)), applied(Opaque(4)))
    assert (change.aspect, change.before, change.after) == ("state", "3", "4")
    assert diff(applied(Opaque(3)), applied(Opaque(3))).notes == ()


def test_classes_of_one_name_are_not_told_apart_by_silence() -> None:
    twin = type("Opaque", (Opaque,), {})
    change = only_change(applied(Opaque(3)), applied(twin(3)))
    assert change.before == change.after == "Opaque of x"
    assert notes_of(change) == ("different, though printed alike",)


def test_what_has_a_value_needs_no_note() -> None:
    assert diff(applied(pt.exp(tensor("x")).owner.op), applied(Opaque(3))).notes == ()
