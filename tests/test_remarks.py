"""Remarks as data: each code has a text, and what differs in slots only is one line."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.diff.changes import Note, SubjectKind
from scanopt_cli.remarks import Code, Remark, RemarkKind, Why, because
from scanopt_cli.reports.as_json import plain
from scanopt_cli.reports.change_text import NOTES, SUBJECTS
from scanopt_cli.reports.optimize_report import shown
from scanopt_cli.reports.remark_text import HINTS, REASONS, TEXTS, grouped, hint_of, text_of
from support.graph_building import graph_of, scan

SOURCES = "\n".join(
    path.read_text() for path in (Path(so.__file__).parent).rglob("*.py") if path.stem != "remarks"
)


USES = Counter(re.findall(r"\b(\w+)\.(\w+)\b", SOURCES))
"""How often a member of a class is named."""


def remark(code: Code, *slots: str, **more: Any) -> Remark:
    return Remark(pass_name="p", code=code, kind=RemarkKind.PASSED, scan="f", slots=slots, **more)


def test_each_code_has_a_text_and_is_used() -> None:
    assert set(TEXTS) == set(Code)
    assert set(REASONS) == set(Why)
    assert set(HINTS) <= set(Why)
    for code in (*Code, *Why):
        uses = USES[type(code).__name__, code.name]
        assert uses > 1 or code in (Code.NOTE, Why.OTHER), code


def test_each_subject_and_note_of_a_change_has_a_text() -> None:
    assert set(SUBJECTS) == set(SubjectKind)
    assert set(NOTES) == set(Note)
    for code in (*SubjectKind, *Note):
        assert USES[type(code).__name__, code.name] > 1, code


@pytest.mark.parametrize(
    "text", [*TEXTS.values(), *REASONS.values(), *SUBJECTS.values(), *NOTES.values()]
)
def test_texts_are_lines_with_fields(text: str) -> None:
    fields = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    assert all(map(str.isidentifier, fields))
    assert "\n" not in text


def test_a_remark_in_words() -> None:
    short = remark(Code.BUFFER_SHORTENED, "h", details={"rows": 2, "reads": ("[-1]", "its shape")})
    assert text_of(short) == "keeps 2 rows of `h`: read as [-1] and its shape"
    many = remark(Code.SCANS_MERGED, details={"others": tuple("abcdef")})
    assert text_of(many) == "merged with `a`, `b`, `c`, `d` and 2 more"
    assert text_of(remark(Code.SLICE_COMPOSED, count=3)) == "simplified or composed 3 slices"
    for steps, text in ((1, "runs 1 step at most"), ("min(3,n)", "runs min(3,n) steps at most")):
        assert text_of(remark(Code.FIRST_STEPS_RUN, details={"steps": steps})).startswith(text)


def test_a_missed_rewrite_says_why_and_what_to_do() -> None:
    why = because(Why.NO_STEPS, steps="n")
    missed = remark(Code.FIRST_ROW_KEPT, "h", reason=why)
    assert text_of(missed).endswith("the first step: the trip count n may be 0")
    assert hint_of(missed) == "use a constant n_steps, or sequences of static length"


def test_remarks_that_differ_in_slots_are_one_line() -> None:
    details = {"rows": 2, "reads": ("[-1]",)}
    alike = [remark(Code.BUFFER_SHORTENED, name, details=details) for name in "abcdefg"]
    (one,) = grouped(alike)
    assert text_of(one) == "keeps 2 rows of `a`, `b`, `c`, `d` and 3 more: read as [-1]"
    other = remark(Code.BUFFER_SHORTENED, "h", details={**details, "rows": 3})
    assert len(grouped([*alike, other])) == 2


def test_json_carries_codes_and_fields() -> None:
    xs = scan(lambda x: x * 2, outputs_info=[pt.dscalar("x0")], n_steps=9)
    result = so.optimize(graph_of(xs[-1]), "save-mem")
    (saved,) = json.loads(json.dumps(plain(result)))["passes"][0]["remarks"]
    assert saved == {
        "pass_name": "save-mem",
        "code": "buffer-shortened",
        "kind": "passed",
        "scan": "scan_fn",
        "slots": ["x0"],
        "details": {"rows": 2, "reads": ["[-1]"]},
        "place": None,
        "reason": None,
        "count": 1,
    }


def test_what_passes_found_out_is_shown_on_request() -> None:
    xs = scan(lambda x: x * 2, outputs_info=[pt.dscalar("x0")], n_steps=9)
    (run,) = so.optimize(graph_of(xs.sum()), "save-mem").passes
    assert shown(run, verbose=False) == []
    assert [text_of(one) for one in shown(run, verbose=True)] == [
        "keeps all steps of `x0`: read as an operand of Sum"
    ]
