"""The diff in each format: readable without colour, and safe whatever names a file holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.diff.budgets import Violation, check, counts_text, parse_budget
from scanopt_cli.diff.changes import (
    Change,
    ChangeKind,
    GraphDiff,
    LoopChange,
    LoopFate,
    Subject,
)
from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.reports import as_markdown, diff_github
from scanopt_cli.reports.as_json import to_json
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.diff_signs import FATES, SIGNS
from scanopt_cli.reports.workflow import step_summary
from support.printing import printed
from support.recurrences import base, tensor, variant

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
    assert any(line.startswith("  - sit_sot `b`") for line in lines)


def test_each_kind_of_change_has_a_sign() -> None:
    assert set(SIGNS) == set(ChangeKind)
    assert set(FATES) == set(LoopFate)


def test_changes_are_grouped_by_loop() -> None:
    """Each loop is headed once, behind everything outside."""
    text = shown(diff(base.graph(gradient=True), variant(sequences=("x", "y"))))
    heads = [line for line in text.splitlines() if "Scan `" in line and line[0] in "+-~"]
    assert len(heads) == 2
    assert text.count("outside of loops") == 1


def test_equal_graphs_are_said_to_be_the_same() -> None:
    found = diff(base.graph(), variant())
    assert "same" in shown(found)
    assert "same" in marked(found)
    assert diff_github.workflow_commands(found, file="g.pkl").startswith("the graphs")


def test_stat_has_one_line_a_loop() -> None:
    found = diff(base.graph(), variant(sequences=("x", "z")))
    place = "recurrences.py" if found.loops[0].place else ""
    lines = shown(found, stat=True).splitlines()
    assert place in lines[0]
    assert (lines[0].split()[0], lines[0].rpartition("|")[2].split()) == ("rnn", ["3", "--~"])
    assert lines[1:] == [
        "1 loop, 3 changes: 0 added(+), 2 removed(-), 1 changed(~)",
        f"{found.unchanged} nodes the same",
        f"counts of B, as --budget takes them: {counts_text(found.after)}",
    ]
    assert f"| 3 --~\n{lines[1]}\n{lines[2]}\n```" in marked(found, stat=True)


def test_a_bar_and_a_name_fit_in_a_line() -> None:
    loops = (
        LoopChange(fate=LoopFate.CHANGED, name="f", changed=4_000, added=1, place="m.py:3 in g"),
        LoopChange(fate=LoopFate.MERGED, name="long" * 30, into="f", removed=1),
        LoopChange(fate=LoopFate.NEW, name="h", path=("f",), place=f"{'a/' * 40}m.py:7", added=1),
    )
    lines = shown(replace(many(4_003), loops=loops), width=80, stat=True).splitlines()
    assert max(map(len, lines)) < 80
    assert lines[0].startswith("f (m.py:3 in g) ")
    assert lines[0].endswith(f"| 4001 +{'~' * 20}")
    assert lines[1].split(" | ")[0].strip().endswith("…")
    assert lines[2].startswith("f/h (m.py:7), new")
    assert lines[3].startswith("outside of loops")


def test_equal_graphs_are_one_line_whatever_is_asked_for() -> None:
    for found in (diff(base.graph(), variant()), diff(base.graph(), variant(name="gru"))):
        for text in (shown(found), marked(found)):
            assert len(text.splitlines()) == 1
        assert len(shown(found, stat=True).splitlines()) == 2  # and the counts


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
    (loop,) = told["loops"]
    assert (loop["fate"], loop["name"], loop["changed"]) == ("changed", "rnn", 1)
    (change,) = told["changes"]
    assert (change["kind"], change["where"], change["after"]) == ("changed", ["rnn"], "0.75")


def test_broken_budgets_are_in_every_format() -> None:
    graph = base.graph(gradient=True)
    violations = check(parse_budget("mit_mot=0"), graph)
    found = diff(graph, graph)
    told = "over budget: mit_mot is 3, the budget is 0: grad_of_rnn: 3"
    assert told in printed(diff_report(found, violations))
    assert "over budget: mit\\_mot is 3" in marked(found, violations)
    first = diff_github.workflow_commands(found, violations, file="g.pkl").splitlines()[0]
    assert first.startswith("::error file=g.pkl,title=over budget::mit_mot is 3")


def test_no_more_annotations_than_a_step_may_have() -> None:
    lines = diff_github.workflow_commands(many(50), file="g.pkl").splitlines()
    assert lines[0].startswith("::notice file=g.pkl,title=the graphs differ::")
    assert len(lines) == 1 + 10
    assert "41 more changes" in lines[-1]


def test_a_summary_fits_the_limit() -> None:
    summary = step_summary(diff_report(many(60_000), stands_alone=True))
    assert len(summary.encode()) < 2**20
    assert summary.endswith("too long for a step summary\n")


def test_properties_of_annotations_are_escaped() -> None:
    _, line = diff_github.workflow_commands(many(1), file="a,b:c%\n.pkl").splitlines()
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
    notice, *warnings = commands.splitlines()
    assert notice.startswith("::notice file=")
    assert all(line.startswith("::warning file=") for line in warnings)
    assert len(warnings) == len(found.changes)
    assert "<script>" not in marked(found).replace("\\<script\\>", "")
