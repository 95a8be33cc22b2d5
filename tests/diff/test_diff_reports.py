"""The diff in each format: readable without colour, and safe whatever names a file holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from recurrences import base, tensor, variant

from printing import printed
from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.diff.budgets import Violation, check, parse_budget
from scanopt_cli.diff.changes import Change, ChangeKind, GraphDiff, Subject
from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.reports import as_markdown, diff_github
from scanopt_cli.reports.as_json import to_json
from scanopt_cli.reports.diff_report import SIGNS, diff_report

HOSTILE = [
    "[red]x[/red]",
    "[/]",
    "\x1b[31mx",
    "x\n::error::owned",
    "x\r::stop-commands::y",
    "%0A::error::",
    "x|y`z",
    "<script>",
    "\u202ex",
    "a,b:c",
]


def shown(found: GraphDiff, *, width: int = 100, stat: bool = False) -> str:
    return printed(diff_report(found, stat=stat), width)


def marked(found: GraphDiff, violations: Sequence[Violation] = (), *, stat: bool = False) -> str:
    return as_markdown.render(diff_report(found, violations, stat=stat, stands_alone=True))


def many(count: int) -> GraphDiff:
    changes = tuple(
        Change(kind=ChangeKind.ADDED, subject=Subject(op=f"node {place}")) for place in range(count)
    )
    statistics = Statistics()
    return GraphDiff(
        same=False,
        changes=changes,
        before=statistics,
        after=statistics,
        digest_before="0",
        digest_after="1",
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_signs_tell_the_kind_without_colour(width: int) -> None:
    lines = shown(diff(base.graph(), variant(states=("h", "c"))), width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert any(line.startswith("- sit_sot `b` of Scan `rnn`") for line in lines)


def test_each_kind_of_change_has_a_sign() -> None:
    assert set(SIGNS) == set(ChangeKind)


def test_changes_are_grouped_by_loop() -> None:
    """Each loop is headed once, behind everything outside."""
    text = shown(diff(base.graph(gradient=True), variant(sequences=("x", "y"))))
    heads = [line for line in text.splitlines() if line.startswith("in ")]
    assert len(heads) == len(set(heads))


def test_equal_graphs_are_said_to_be_the_same() -> None:
    found = diff(base.graph(), variant())
    assert "same" in shown(found)
    assert "same" in marked(found)
    assert diff_github.workflow_commands(found, file="g.pkl").startswith("the graphs")


def test_stat_has_one_line_a_category() -> None:
    found = diff(base.graph(), variant(sequences=("x", "z")))
    assert shown(found, stat=True).splitlines() == [
        f"same    | {found.unchanged}",
        "removed |  2 --",
        "changed |  1 ~",
    ]
    assert "\nremoved |  2 --\nchanged |  1 ~\n```" in marked(found, stat=True)


def test_equal_graphs_are_one_line_whatever_is_asked_for() -> None:
    for found in (diff(base.graph(), variant()), diff(base.graph(), variant(name="gru"))):
        for text in (shown(found), shown(found, stat=True), marked(found)):
            assert len(text.splitlines()) == 1


def test_new_names_of_equal_graphs_are_in_that_line() -> None:
    found = diff(base.graph(gradient=True), replace(base, name="gru").graph(gradient=True))
    told = (
        "the graphs are the same, but for names: "
        "Scan `rnn` is now `gru`, Scan `grad_of_rnn` is now `grad_of_gru`"
    )
    assert shown(found, width=200).strip() == told
    assert diff_github.workflow_commands(found, file="g.pkl") == told


def test_json_has_the_names_of_the_library() -> None:
    found = diff(base.graph(), variant(factor=0.75))
    told = json.loads(to_json("diff", found))
    assert told["same"] is False
    assert told["digest_before"] == found.digest_before
    (change,) = told["changes"]
    assert (change["kind"], change["where"], change["after"]) == ("changed", ["rnn"], "0.75")


def test_broken_budgets_are_in_every_format() -> None:
    graph = base.graph(gradient=True)
    violations = check(parse_budget("mit_mot=0"), graph)
    found = diff(graph, graph)
    told = "over budget: mit_mot is 3, the budget is 0 (grad_of_rnn: 3)"
    assert told in printed(diff_report(found, violations))
    assert "over budget: mit\\_mot is 3" in marked(found, violations)
    first = diff_github.workflow_commands(found, violations, file="g.pkl").splitlines()[0]
    assert first.startswith("::error file=g.pkl,title=over budget::mit_mot is 3")


def test_no_more_annotations_than_a_step_may_have() -> None:
    lines = diff_github.workflow_commands(many(50), file="g.pkl").splitlines()
    assert len(lines) == 10
    assert "41 more changes" in lines[-1]


def test_a_summary_fits_the_limit() -> None:
    summary = diff_github.step_summary(many(60_000))
    assert len(summary.encode()) < 2**20
    assert summary.endswith("too long for a step summary\n")


def test_properties_of_annotations_are_escaped() -> None:
    (line,) = diff_github.workflow_commands(many(1), file="a,b:c%\n.pkl").splitlines()
    assert line == "::warning file=a%2Cb%3Ac%25\\n.pkl,title=added in the graph::node 0"


def with_name(name: str, operator: Callable[[Variable], Variable]) -> Graph:
    """A graph that has ``name`` on an input, on a loop and on a result."""
    x = tensor("x")
    x.name = name
    result = pytensor.scan(lambda a: operator(a) * 2.0, x, name=name, return_updates=False)
    result.name = name
    return from_io([x], [operator(result)])


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_files_are_shown_and_do_nothing(name: str) -> None:
    found = diff(with_name(name, pt.exp), with_name(name, pt.tanh))
    assert not found.same
    text = shown(found, width=400)
    commands = diff_github.workflow_commands(found, file=f"{name}.pkl")
    for printed_text in (text, marked(found), commands):
        assert all(char.isprintable() or char == "\n" for char in printed_text)
    if name.startswith("["):
        assert name in text
    assert all(line.startswith("::warning file=") for line in commands.splitlines())
    assert len(commands.splitlines()) == len(found.changes)
    assert "<script>" not in marked(found).replace("\\<script\\>", "")
