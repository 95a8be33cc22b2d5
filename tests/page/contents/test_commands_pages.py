"""What the pages of optimize, diff, grad, bisect and view say of real results."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import In, function

import scanopt_cli as so
from scanopt_cli.autodiff.derivative import Check, Outcome
from scanopt_cli.culprits.culprit import Maker
from scanopt_cli.diff.budgets import check, parse_budget
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.page.contents import step_code
from scanopt_cli.page.contents.bisect_page import bisect_part
from scanopt_cli.page.contents.diff_page import Compared, diff_part
from scanopt_cli.page.contents.grad_page import grad_part
from scanopt_cli.page.contents.optimize_page import Optimized, optimize_part
from scanopt_cli.page.contents.parts import Part, page_of
from scanopt_cli.page.contents.stages import Stages
from scanopt_cli.page.contents.step_code import code_sections
from scanopt_cli.page.contents.times import spent_verifying
from scanopt_cli.page.contents.view_page import Viewed, view_part
from scanopt_cli.page.page import Spent, Tone
from scanopt_cli.page.rendering import compact, render
from scanopt_cli.reports.as_rich import plain
from scanopt_cli.reports.document import Preformatted
from scanopt_cli.verification.result import (
    CompilationTimes,
    Verdict,
    Verification,
    VerificationTimes,
)
from support.drawn_graphs import gradient, many_nodes, walk
from support.graph_building import scan

TIMES = VerificationTimes(
    seconds=40.0,
    compilations=(
        CompilationTimes(graph="a", mode="plain", compiling=1.0, first_call=0.5, calls=1),
        CompilationTimes(
            graph="b", mode="numba", compiling=2.0, first_call=9.0, later_calls=3.0, calls=5
        ),
    ),
)


def text_of(part: Part, title: str) -> str:
    (section,) = (section for section in part.sections if section.title == title)
    return plain(section.blocks)


def titles(part: Part) -> list[str]:
    return [section.title for section in part.sections]


def optimized(graph: so.Graph, **more: object) -> Part:
    stages = Stages(graph)
    result = so.optimize(graph, watch=stages.watch)
    result = replace(result, **more)
    done = Optimized(
        result=result,
        left=so.check(result.graph),
        stages=stages,
        seconds={"loading": 0.5, "optimizing": 100.0, "checking": 0.25},
    )
    return optimize_part(done, "m.pkl")


def test_optimize_tells_counts_what_is_left_and_times() -> None:
    part = optimized(gradient())
    assert "nodes outside" in text_of(part, "Before and after")
    (section,) = (one for one in part.sections if one.runs is not None)
    assert section.title == "Passes, run by run"
    assert "merge-equal" in {run.name for run in section.runs.rows}  # type: ignore[union-attr]
    times = text_of(part, "Times")
    assert "500 ms" in times
    assert "copies and counts" in times
    assert "rewrites" in times
    assert [one.what for one in part.times] == [
        "loading",
        "passes",
        "copies and counts",
        "what is left to do",
    ]
    assert sum(one.seconds for one in part.times[1:3]) == pytest.approx(100.0)
    assert part.verdict.startswith("2 Scans")


@pytest.mark.parametrize(
    ("verdict", "tone"), [(Verdict.DIFFERS, Tone.BAD), (Verdict.COULD_NOT_RUN, Tone.WARNING)]
)
def test_a_result_that_is_not_verified_is_not_good(verdict: Verdict, tone: Tone) -> None:
    verification = Verification(
        verdict=verdict, runs=0, runs_tried=3, reason="it crashes", times=TIMES
    )
    part = optimized(walk(), verification=verification)
    assert part.tone is tone
    assert titles(part)[0] == "Verification"
    times = text_of(part, "Times")
    for said in ("verification", "of that compiling by numba", "of that running", "b, numba"):
        assert said in times
    told = {one.what: one for one in part.times}
    assert told["verification"].seconds == 40.0
    assert sum(one.seconds for one in told["verification"].parts) == pytest.approx(40.0)
    assert sum(one.seconds for one in part.times[1:4]) == pytest.approx(100.0)


def test_the_first_screen_tells_times_and_of_several_graphs_their_sums() -> None:
    part = Part(source="a.pkl", verdict="fine", times=[Spent("passes", 1.5)])
    html = render(page_of("scanopt optimize", [part]))
    head = html[: html.index("<main>")]
    assert "passes <b>1.5 s</b>" in head
    assert 'width="1000.0"' in head
    more = [spent_verifying(TIMES), Spent("passes", 0.5)]
    both = page_of("scanopt optimize", [part, replace(part, source="b.pkl", times=more)])
    assert [(one.what, one.seconds) for one in both.times] == [
        ("passes", 2.0),
        ("verification", 40.0),
    ]
    assert 'class="times"' not in render(page_of("scanopt view", [replace(part, times=())]))


def test_diff_draws_both_graphs_beside_each_other() -> None:
    a, b = walk(), gradient()
    part = diff_part(Compared(found=so.diff(a, b), graphs=(a, b)), "a → b")
    (drawn,) = part.drawn
    assert drawn.side_by_side
    assert [stage.title[:2] for stage in drawn.picture.stages] == ["A:", "B:"]
    assert part.tone is Tone.NEUTRAL
    assert {"Counts of A and B", "Changes"} <= {*titles(part)}


def test_graphs_that_are_the_same_are_good_and_a_broken_budget_is_bad() -> None:
    a = walk()
    found = so.diff(a, walk())
    assert diff_part(Compared(found=found), "a").tone is Tone.GOOD
    broken = check(parse_budget("scans=0"), a)
    part = diff_part(Compared(found=found, violations=broken), "a")
    assert part.tone is Tone.BAD
    assert "over budget: scans is 1" in part.verdict
    assert "scans is 1" in text_of(part, "Over budget")


def test_grad_tells_the_pedigree_in_the_text_and_at_the_loops() -> None:
    part = grad_part(so.grad(walk(), check=False, strategy="reverse", order=2), "m.pkl")
    assert "pullback of walk" in text_of(part, "Pedigree of the loops")
    (drawn,) = part.drawn
    assert [stage.title for stage in drawn.picture.stages][1:] == ["order 1", "order 2"]
    told = {loop: text for _, loop, text in drawn.picture.stages[1].remarks}
    assert "pullback of walk" in told["grad_of_walk"]
    assert "derivative of order 2" in part.verdict
    assert not part.times


def test_grad_tells_how_long_its_check_took() -> None:
    derivative = so.grad(walk(), check=False, strategy="reverse")
    check = Check(outcome=Outcome.AGREES, against="forward", seconds=41.0, times=TIMES)
    part = grad_part(replace(derivative, check=check), "m.pkl")
    assert [(one.what, one.seconds) for one in part.times] == [("check of values", 40.0)]
    assert "b, numba" in text_of(part, "Times")


def test_strategies_that_are_compared_are_drawn_each() -> None:
    ways = ("reverse", "forward")
    one, other = (so.grad(walk(), wrt="h", check=False, strategy=each) for each in ways)
    part = grad_part(replace(one, compared=(other,)), "m.pkl")
    assert [drawn.title for drawn in part.drawn] == ["m.pkl, reverse", "m.pkl, forward"]
    assert "Pedigree of the loops by forward" in titles(part)


def test_bisect_draws_the_graphs_around_each_culprit() -> None:
    culprit = so.Culprit(maker=Maker.SCANOPT, name="save-mem", number=1, of=2, why="2 is no 1")
    around = replace(culprit, before=walk(), after=gradient())
    for culprits, n_drawn, tone in (((), 0, Tone.GOOD), ((culprit, around), 1, Tone.BAD)):
        found = so.Bisection(property="values", pipeline="x", culprits=culprits, probes=3)
        part = bisect_part(found, "m.pkl")
        assert (len(part.drawn), part.tone) == (n_drawn, tone)
    assert part.drawn[0].side_by_side
    assert "save-mem, rewrite 1 of 2" in part.verdict
    crashed = replace(culprit, before=walk())
    timed = replace(found, culprits=(crashed,), seconds=50.0, times=TIMES)
    part = bisect_part(timed, "m.pkl")
    assert [(one.what, one.seconds) for one in part.times] == [
        ("looking at graphs", 40.0),
        ("running passes", 10.0),
    ]
    assert "b, numba" in text_of(part, "Times")
    assert not part.drawn[0].side_by_side  # a pass that crashes leaves no graph


def test_view_tells_loops_slots_and_values() -> None:
    graph = walk()
    part = view_part(Viewed(graph=graph, trace=so.trace(graph)))
    assert "sit_sot" in text_of(part, "Slots of each loop")
    assert "over the steps" in text_of(part, "Values at each step")
    assert "x" in text_of(part, "Inputs and outputs")


def test_view_of_a_graph_without_loops() -> None:
    x = pt.vector("x")
    part = view_part(Viewed(graph=as_graph(([x], [x + 1]))))
    assert titles(part) == ["Loops", "Inputs and outputs"]
    assert "no loop" in text_of(part, "Loops")
    assert part.drawn


def test_the_source_of_steps_runs_and_equal_loops_are_told_once() -> None:
    graph = walk()
    (section,) = code_sections(as_graph((graph.inputs, [graph.outputs[0], *_again(graph)])))
    assert "1 more loop like it" in plain(section.blocks)
    scripts = [block for block in section.blocks if isinstance(block, Preformatted)]
    assert len(scripts) == 2  # as the graph has it, and as it is compiled
    for script in scripts:
        names: dict[str, Any] = {}
        exec("\n".join(map(str, script.lines)), names)
        inputs = names["inputs"]
        # What is compiled works in place.
        ends = [In(variable, mutable=True) for variable in inputs]
        how = {"accept_inplace": True, "on_unused_input": "ignore", "mode": "FAST_COMPILE"}
        step = function(ends, names["outputs"][0], **how)
        given = [np.asarray(0.5 if "t-1" in v.name else 1.0) for v in inputs]
        assert step(*given) == pytest.approx(np.tanh(1.25))
    assert not section.is_open


def test_the_source_has_the_names_of_loops_inside() -> None:
    x = pt.matrix("x")
    rows = scan(
        lambda row: scan(lambda a, s: s * a, sequences=[row], outputs_info=[row[0]], name="in")[-1],
        sequences=[x],
        name="out",
    )
    text = plain(next(code_sections(as_graph(([x], [rows])))).blocks)
    assert 'name="out/in"' in text
    assert not re.search(r"<\d+>", text)


def test_of_a_loop_that_pytensor_removes_nothing_is_compiled() -> None:
    x = pt.vector("x", shape=(3,))
    doubled = scan(lambda a: a * 2, sequences=[x], name="doubled")
    text = plain(next(code_sections(as_graph(([x], [doubled])))).blocks)
    assert "no loop is left of it" in text


def test_a_traced_loop_is_compiled_as_it_is() -> None:
    graph = so.optimize(walk(), "loop").graph
    text = plain(next(code_sections(graph)).blocks)
    assert "it is compiled as it is" in text
    assert "as PyTensor's rewrites" not in text


def test_a_graph_that_takes_too_long_to_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_code, "compiled_loops", lambda *_: None)
    text = plain(next(code_sections(walk())).blocks)
    assert "PyTensor takes too long" in text
    assert "import pytensor.tensor as pt" in text


def _again(graph: so.Graph) -> list[object]:
    x, h = graph.inputs
    ys = scan(lambda x_t, h: pt.tanh(h * 0.5 + x_t), sequences=[x], outputs_info=[h + 1])
    return [ys[-1]]


def test_no_source_without_loops() -> None:
    x = pt.vector("x")
    assert list(code_sections(as_graph(([x], [x + 1])))) == []


def test_a_page_grows_as_its_graph_does() -> None:
    sizes = [len(json.dumps(compact(_viewed(count)))) for count in (100, 200, 400)]
    first, second = (larger - smaller for smaller, larger in pairwise(sizes))
    assert 1.9 < second / first < 2.1


def _viewed(count: int) -> object:
    (drawn,) = view_part(Viewed(graph=many_nodes(count))).drawn
    return drawn.picture
