"""A loop is named with the line of the program that wrote it, relative to where scanopt runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.configdefaults import config
from pytensor.scan.op import Scan

import scanopt_cli as so
from scanopt_cli.integration.scan_calls import recorded_scan_calls
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.written import Written, from_stacks, marked, place_of, shown_path, written
from scanopt_cli.pipeline.grammar import PRESETS

scan = partial(pytensor.scan, return_updates=False)

PYTENSOR = str(Path(pytensor.__file__).parent / "scan" / "basic.py")
REWRITING = "/env/lib/python3.13/site-packages/pymc/pytensorf.py"
LIBRARY = "/env/lib/python3.13/site-packages/pymc/timeseries.py"
DENSITIES = "/env/lib/python3.13/site-packages/pymc/logprob/scan.py"
REWRITER = "/env/lib/python3.13/site-packages/pytensor/graph/rewriting/basic.py"
PYTHON = "/usr/lib/python3.13/contextlib.py"


def frame(
    file: str, line: int = 7, function: str = "make", source: str | None = "ys = scan(...)"
) -> tuple[str, int, str, str | None]:
    return file, line, function, source


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        ([frame("/a/model.py")], "model.py:7 in make"),
        ([frame("/a/model.py", function="<module>")], "model.py:7"),
        ([frame("/a/run.py", 1), frame("/a/model.py", 2)], "model.py:2 in make"),
        ([frame("/a/model.py"), frame(PYTENSOR)], "model.py:7 in make"),
        ([frame("/a/model.py"), frame(LIBRARY)], "model.py:7 in make"),
        ([frame("/a/model.py"), frame(PYTHON)], "model.py:7 in make"),
        ([frame(LIBRARY, 9, "step")], "pymc/timeseries.py:9 in step"),
        ([frame("/a/run.py"), frame(REWRITING), frame(PYTENSOR)], None),
        ([frame("/a/run.py"), frame(DENSITIES), frame(PYTENSOR)], None),
        ([frame("/a/run.py"), frame(REWRITER), frame(LIBRARY)], None),
        ([frame("/a/run.py"), frame(REWRITER), frame("/a/passes.py")], None),
        ([frame("/a/run.py", source="g = rewrite_graph(g)")], None),
        ([frame("/a/run.py", source="f = pytensor.function([x], y)")], None),
        ([frame("/a/run.py", source="f = pytensor.function([x], scan(s))")], "run.py:7 in make"),
        ([frame("/a/run.py", source="ys = my_function_of(x)")], "run.py:7 in make"),
        ([frame("/a/run.py", source=None)], "run.py:7 in make"),
        ([frame(PYTENSOR)], None),
        ([frame("<frozen runpy>"), frame(PYTHON)], None),
        ([], None),
    ],
)
def test_the_innermost_line_of_the_program(stack: list[Any], place: str | None) -> None:
    found = from_stacks([stack])
    assert (None if found is None else found.place) == place


def test_a_rewritten_loop_keeps_the_line_of_the_one_that_it_was() -> None:
    found = from_stacks([[frame("/a/run.py"), frame(REWRITING)], [frame("/a/model.py")]])
    assert found is not None
    assert found.place == "model.py:7 in make"


@pytest.mark.parametrize("trace", [None, "text", (), [[]]])
def test_what_is_no_trace_has_no_line(trace: Any) -> None:
    assert from_stacks(trace) is None


def test_paths_are_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_path(str(tmp_path / "models" / "garch.py")) == "models/garch.py"
    assert shown_path("/elsewhere/models/garch.py") == "garch.py"
    assert shown_path("<ipython-input-3>") == "<ipython-input-3>"
    assert shown_path(LIBRARY) == "pymc/timeseries.py"


def two_loops() -> tuple[list[Any], list[Any]]:
    """Return a graph of a loop within a loop, its gradient, and one that merges with it."""

    def step(v: Any, total: Any, rate: Any) -> Any:
        inner = scan(
            lambda power, base: pt.tanh(power * base),
            outputs_info=[pt.ones(())],
            non_sequences=[rate],
            n_steps=3,
        )
        return pt.tanh(total * rate + v) + inner[-1]

    x, w = pt.dvector("x"), pt.dscalar("w")
    ys = scan(step, sequences=[x], outputs_info=[pt.zeros(())], non_sequences=[w])
    zs = scan(lambda v, rate: v * rate, sequences=[x], non_sequences=[w])
    cost = ys[-1] + zs.sum()
    return [x, w], [cost, pytensor.grad(cost, w)]


def loops(graph: Any) -> list[Any]:
    return [node.op for node in walk(graph.fgraph) if is_loop(node)]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any]]:
    monkeypatch.chdir(Path(__file__).parents[1])
    with recorded_scan_calls(), config.change_flags(traceback__limit=8):
        return two_loops()


@pytest.mark.parametrize("passes", [name for name in PRESETS if name != "none"])
def test_passes_keep_it(recorded: tuple[list[Any], list[Any]], passes: str) -> None:
    graph = so.optimize(recorded, passes=passes).graph
    outer = [node for node in graph.fgraph.apply_nodes if is_loop(node)]
    # What leaves the body of a pullback was written nowhere.
    known = [place for node in outer if (place := place_of(node)) is not None]
    assert len(known) >= 2
    for place in known:
        assert place.startswith("ir/test_written.py:")
    names = {name for op in loops(graph) if (found := written(op)) for name in found.arguments}
    assert {"total", "rate", "power", "base"} <= names


@pytest.mark.parametrize("passes", ["scan-to-loop", "scan-to-loop,loop-to-scan", "checkpoint"])
def test_names_follow_their_slots(recorded: tuple[list[Any], list[Any]], passes: str) -> None:
    inputs, (cost, _) = recorded
    graph: Any = (inputs, [cost])
    for name in passes.split(","):
        graph = so.optimize(graph, passes=name).graph
    for node in graph.fgraph.apply_nodes:
        if is_loop(node) and (found := written(node.op)) is not None:
            assert set(found.arguments) <= {"v", "total", "rate", None}


def test_files_keep_it(recorded: tuple[list[Any], list[Any]], tmp_path: Path) -> None:
    graph = so.optimize(recorded, passes="remove-unused").graph
    so.save(graph, tmp_path / "graph.pkl")
    loaded = so.load(tmp_path / "graph.pkl")
    before, after = ([written(op) for op in loops(each)] for each in (graph, loaded))
    assert before == after
    assert sum(found is not None for found in after) >= 4


def test_equal_loops_of_two_lines_stay_apart_in_files(tmp_path: Path) -> None:
    x = pt.dvector("x")
    with recorded_scan_calls():
        ys = scan(lambda a: a * 2, sequences=[x])
        zs = scan(lambda b: b * 2, sequences=[x])
    so.save(([x], [ys, zs]), tmp_path / "graph.pkl")
    found = [written(op) for op in loops(so.load(tmp_path / "graph.pkl"))]
    assert {each.arguments[0] for each in found if each is not None} == {"a", "b"}


def test_it_is_no_part_of_what_a_loop_is(recorded: tuple[list[Any], list[Any]]) -> None:
    inputs, outputs = recorded
    op = next(node.op for node in walk(so.optimize(recorded, "none").graph.fgraph) if is_loop(node))
    other = marked(op, Written("other.py", 1, "f"))
    assert (op == other, hash(op)) == (True, hash(other))
    assert so.digest((inputs, outputs)) == so.digest(two_loops())


def test_steps_that_take_any_number_of_arguments_have_names_for_the_first() -> None:
    x, w = pt.dvector("x"), pt.dscalar("w")
    with recorded_scan_calls():
        ys = scan(
            lambda first, *others: first + sum(others), sequences=[x, x + 1], non_sequences=[w]
        )
    (op,) = (
        node.op for node in walk(so.optimize(([x, w], [ys]), "none").graph.fgraph) if is_loop(node)
    )
    found = written(op)
    assert found is not None
    assert found.arguments == ("first", None, None, None)


def test_taps_share_a_name() -> None:
    x = pt.dvector("x")
    with recorded_scan_calls():
        ys = scan(
            lambda before, old, new: new + old + before,
            sequences=[{"input": x, "taps": [-1]}],
            outputs_info=[{"initial": pt.zeros(2), "taps": [-2, -1]}],
        )
    (op,) = (
        node.op for node in walk(so.optimize(([x], [ys]), "none").graph.fgraph) if is_loop(node)
    )
    found = written(op)
    assert found is not None
    assert found.arguments == ("before", "new")


def test_nothing_is_recorded_outside(tmp_path: Path) -> None:
    init = Scan.__init__
    with recorded_scan_calls(), recorded_scan_calls():
        assert Scan.__init__ is not init
    assert Scan.__init__ is init
    with so.capture(tmp_path), so.enabled():
        pass
    assert Scan.__init__ is init
