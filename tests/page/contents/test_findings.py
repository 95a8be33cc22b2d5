"""Findings on a page: the worst first, by lines, and beside the picture."""

from __future__ import annotations

from pathlib import Path

import scanopt_cli as so
from scanopt_cli.page.contents.check_page import Checked, check_part
from scanopt_cli.page.contents.finding_sections import finding_blocks, tone_of
from scanopt_cli.page.page import Tone
from scanopt_cli.reports.as_rich import plain
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.rule_contract import Finding, Fix, Severity
from support.drawn_graphs import walk


def finding(severity: Severity, place: str | None = "model.py:4 in step") -> Finding:
    return Finding(
        code=f"X00{len(severity)}",
        name="a-rule",
        severity=severity,
        loop="walk",
        place=place,
        text=f"a {severity} of it",
        cost="8*n bytes",
        fix=Fix("save-mem"),
        key=severity,
    )


def test_the_worst_findings_come_first_below_their_lines() -> None:
    text = plain(finding_blocks([finding(each) for each in reversed(Severity)]))
    places = [text.index(f"1 {each}") for each in ("error", "warning", "note")]
    assert places == sorted(places)
    assert text.count("line 4 in step") == 3
    assert "X005 [*]: a error of it; 8*n bytes" in text


def test_tones_are_those_of_the_worst_finding() -> None:
    assert tone_of([finding(Severity.NOTE), finding(Severity.ERROR)]) is Tone.BAD
    assert tone_of([finding(Severity.NOTE), finding(Severity.WARNING)]) is Tone.WARNING
    assert tone_of([finding(Severity.NOTE)]) is Tone.NEUTRAL
    assert tone_of([]) is Tone.GOOD


def test_findings_stand_beside_the_picture_at_their_loop() -> None:
    result = CheckResult((finding(Severity.ERROR),), source="m.pkl")
    part = check_part(Checked(result=result, graph=walk()), Path("m.pkl"))
    (stage,) = part.drawn[0].picture.stages
    assert stage.remarks == (("error", "walk", "X005: a error of it"),)
    assert (part.verdict, part.tone) == ("1 error", Tone.BAD)
    titles = [section.title for section in part.sections]
    assert titles[:3] == ["Findings", "What mends them", "By rule"]


def test_suspects_and_known_findings_are_told() -> None:
    doubt = finding(Severity.WARNING, None)
    result = CheckResult((), known=2, suspects=(doubt,), source="m.pkl")
    part = check_part(Checked(result=result), Path("m.pkl"))
    assert "beside 2 known ones" in part.verdict
    (section,) = part.sections
    assert not section.is_open
    assert "no line known" in plain(section.blocks)
    assert part.drawn == ()


def test_a_graph_without_findings_is_good() -> None:
    part = check_part(Checked(result=so.check(walk()), graph=walk()), Path("m.pkl"))
    assert part.tone in (Tone.GOOD, Tone.NEUTRAL, Tone.WARNING)
    clean = check_part(Checked(result=CheckResult(())), Path("m.pkl"))
    assert (clean.verdict, clean.tone, clean.sections) == ("nothing found", Tone.GOOD, ())
