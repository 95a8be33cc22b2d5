"""The stages of a page are the graph as each pass left it, with what that pass says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import scanopt_cli as so
from scanopt_cli.page.contents import stages as module
from scanopt_cli.page.contents.stages import AS_GIVEN, Stages
from scanopt_cli.page.page import Drawn, Run
from scanopt_cli.pipeline.optimizing import OptimizeResult, Snapshot
from scanopt_cli.remarks import Code, RemarkKind, Why, because
from scanopt_cli.reports.remark_text import grouped, text_of
from support.drawn_graphs import gradient, walk


def drawn(graph: so.Graph, passes: str = "grad") -> tuple[Drawn, str, OptimizeResult]:
    stages = Stages(graph)
    result = so.optimize(graph, passes, watch=stages.watch)
    picture, _, note = stages.drawn(result)
    return picture, note, result


def rows(graph: so.Graph, passes: str = "grad") -> tuple[Sequence[Run], OptimizeResult]:
    stages = Stages(graph)
    result = so.optimize(graph, passes, watch=stages.watch)
    return stages.drawn(result)[1].rows, result


def texts(remarks: Sequence[tuple[str, str, str]], kind: str) -> list[str]:
    return [text for found, _, text in remarks if found == kind]


def test_each_pass_that_changed_the_graph_has_a_stage_with_its_time() -> None:
    picture, note, result = drawn(gradient())
    first, *others = picture.picture.stages
    assert (first.title, first.seconds, note) == (AS_GIVEN, None, "")
    assert {stage.title for stage in others} == {run.name for run in result.passes if run.changed}
    for stage in others:  # each has the time of one run
        assert stage.seconds is not None
        assert 0 < stage.seconds <= sum(r.seconds for r in result.passes if r.name == stage.title)


def test_each_run_is_a_row_with_its_stage_and_the_rest_of_the_time_is_told() -> None:
    runs, result = rows(gradient())
    begin, *others = runs
    assert (begin.name, begin.stage, begin.change) == (AS_GIVEN, 0, "2 Scans, 47 nodes")
    changed = [run for run in others if run.stage is not None]
    assert [run.stage for run in changed] == list(range(1, len(changed) + 1))
    assert others[: len(changed)] == changed
    # Passes that changed nothing come behind, each once, and what is left of the time last.
    *unchanged, rest = others[len(changed) :]
    names = {run.name for run in result.passes} - {run.name for run in changed}
    assert {run.name for run in unchanged} == names
    assert {run.change for run in (*unchanged, rest)} == {"nothing"}
    spent = sum(run.seconds or 0.0 for run in others)
    assert spent == pytest.approx(sum(run.seconds for run in result.passes))
    assert "nodes −" in changed[0].change


def test_every_remark_is_in_a_row() -> None:
    runs, result = rows(gradient())
    told = {(run.name, kind, loop) for run in runs for kind, loop, _ in run.remarks}
    assert told == {
        (run.name, remark.kind.value, remark.scan)
        for run in result.passes
        for remark in grouped(run.remarks)
    }


def test_a_graph_that_stays_as_it_is_has_rows_that_change_nothing() -> None:
    runs, _ = rows(walk(), "fold-loops")
    assert [(run.name, run.change, run.stage) for run in runs[1:]] == [
        ("fold-loops", "nothing", None)
    ]


def test_what_a_pass_did_stands_at_the_stage_that_it_left() -> None:
    picture, _, result = drawn(gradient(), "merge-equal,save-mem")
    given, merged, safe = picture.picture.stages
    assert not texts(given.remarks, "passed")
    for stage in (merged, safe):
        (run,) = (run for run in result.passes if run.name == stage.title)
        done = [text_of(remark) for remark in grouped(run.remarks) if remark.kind == "passed"]
        assert texts(stage.remarks, "passed") == done
    assert texts(merged.remarks, "passed") != texts(safe.remarks, "passed")


def test_a_pass_that_ran_twice_says_at_each_stage_what_it_did_then() -> None:
    snapshots: list[Snapshot] = []
    result = so.optimize(gradient(), "grad", watch=snapshots.append)
    runs = [run for run in result.passes if run.name == "clean-slices"]
    parts = [one.remarks for one in snapshots if one.pass_name == "clean-slices"]
    assert len(parts) > 1
    said = {(r.code, r.scan) for remarks in parts for r in remarks if r.kind == "passed"}
    assert said == {(r.code, r.scan) for run in runs for r in run.remarks if r.kind == "passed"}
    assert any(set(map(_key, one)) != set(map(_key, parts[0])) for one in parts[1:])


def _key(remark: so.Remark) -> object:
    return remark.code, remark.kind, remark.scan, remark.count


def test_missed_rewrites_stand_at_the_last_stage_of_their_pass_or_of_all() -> None:
    graph = gradient()
    stages = Stages(graph)
    result = so.optimize(graph, "merge-equal,save-mem", watch=stages.watch)
    runs = [replace(run, remarks=(_missed(run.name),)) for run in result.passes]
    picture = stages.drawn(replace(result, passes=tuple(runs)))[0].picture
    missed = {stage.title: texts(stage.remarks, "missed") for stage in picture.stages}
    # `compile-safe` is the last one; `save-mem` changed nothing, and so has no stage.
    text = text_of(_missed(""))
    assert missed == {
        AS_GIVEN: [],
        "merge-equal": [text],
        "compile-safe": [text, f"save-mem: {text}"],
    }


def _missed(name: str) -> so.Remark:
    why = because(Why.LOOP_STOPS)
    return so.Remark(
        pass_name=name, code=Code.SCAN_KEPT, kind=RemarkKind.MISSED, scan="walk", reason=why
    )


def test_a_graph_that_stays_as_it_is_has_one_stage() -> None:
    picture, _, result = drawn(walk(), "fold-loops")
    assert not result.changed
    assert [stage.title for stage in picture.picture.stages] == [AS_GIVEN]


def test_the_last_stage_is_the_result() -> None:
    graph = gradient()
    stages = Stages(graph)
    result = so.optimize(graph, "grad", watch=stages.watch)
    whole = len(stages.drawn(result)[0].picture.stages)
    stages.kept.pop()  # as if later passes led back to another graph
    picture = stages.drawn(result)[0].picture
    assert (picture.stages[-1].title, len(picture.stages)) == ("the result", whole)


@pytest.mark.parametrize(("most", "nodes"), [(4, 10**9), (100, 1)])
def test_of_too_many_stages_the_first_and_the_last_are_drawn(
    monkeypatch: pytest.MonkeyPatch, most: int, nodes: int
) -> None:
    whole = [stage.title for stage in drawn(gradient())[0].picture.stages]
    monkeypatch.setattr(module, "MOST_STAGES", most)
    monkeypatch.setattr(module, "MOST_NODES", nodes)
    picture, note, _ = drawn(gradient())
    shown = [stage.title for stage in picture.picture.stages]
    assert len(shown) == (most if most < 100 else 2)
    assert shown == [*whole[: len(shown) - 1], whole[-1]]
    assert note.startswith(f"{len(whole) - len(shown)} stages between")
    listed = [(run.name, run.stage) for run in rows(gradient())[0] if run.change != "nothing"]
    assert [name for name, _ in listed] == whole  # those that are not drawn are rows as well
    assert [whole[0], *(name for name, stage in listed if stage)] == shown
