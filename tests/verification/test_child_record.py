"""What the child tells crosses as JSON, and is what it was."""

from __future__ import annotations

import json
import math

import pytest

from scanopt_cli.verification.child_record import (
    CompiledRun,
    Doing,
    Done,
    Entry,
    Failed,
    ModeNote,
    Record,
    Timed,
    Unevaluated,
    from_line,
    to_line,
)
from scanopt_cli.verification.comparison import Comparison
from scanopt_cli.verification.result import Difference, DifferenceKind, LoopAt

VALUES = Difference(
    kind=DifferenceKind.VALUES,
    run=2,
    mode="numba",
    arguments="random, 1 step",
    a="1.0",
    b="2.0\n",
    output=1,
    name="d out/d «x»",
    where=(3, 0),
    elements=4,
    abs_error=0.1,
    rel_error=math.inf,
    loops=(LoopAt(name="loop", place=None),),
)
LONE = Difference(kind=DifferenceKind.ONLY_A_RAISES, run=None, arguments="", a="E", b="", where=())
ENTRIES: list[Entry] = [
    Doing("evaluating graph b in run 0"),
    Comparison(False, False, (VALUES, LONE), compared=(0, 2), faint=(1,)),
    Comparison(identical=True, empty=True, differences=()),
    Unevaluated("both raise"),
    CompiledRun((LONE,)),
    CompiledRun(()),
    ModeNote("a note"),
    Timed("b", "numba", False, 0.25),
    Failed("out of memory"),
    Done(),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_entries_come_back(entry: Entry) -> None:
    line = to_line(entry)
    back = from_line(line)
    assert "\n" not in line
    assert (type(back), back) == (type(entry), entry)
    if isinstance(back, Comparison | CompiledRun):
        kinds = [type(difference.kind) for difference in back.differences]
        assert kinds == [DifferenceKind] * len(kinds)


def test_what_a_child_could_not_finish_is_no_entry() -> None:
    line = to_line(ENTRIES[1])
    for end in range(len(line)):
        with pytest.raises(json.JSONDecodeError):
            from_line(line[:end])


def test_only_entries_are_made() -> None:
    with pytest.raises(KeyError):
        from_line('["Request", {}]')


def test_entries_of_a_class() -> None:
    assert Record(ENTRIES).of(CompiledRun) == [CompiledRun((LONE,)), CompiledRun(())]
