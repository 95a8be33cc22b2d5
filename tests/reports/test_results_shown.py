"""Results are one line at a prompt, what the command prints in text, and tables in a notebook."""

from __future__ import annotations

import ast
import inspect
import pickle
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor import function
from rich.console import Console
from test_as_html import HOSTILE, read

import scanopt_cli as so
from scanopt_cli.benchmarking.result import Clock, Cost, Estimate, Measured
from scanopt_cli.culprits.culprit import Maker
from scanopt_cli.presentation import Presented
from scanopt_cli.reports.result_lines import in_short
from scanopt_cli.reports.result_reports import line
from support.command_line import scanopt
from support.graph_building import graph_of, power, scan


def _graph(name: str = "square") -> so.Graph:
    x, trace = power(pt.lscalar("n"), name=name)
    x.name = name
    return graph_of(trace[-1], trace.sum())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shown") / "square.pkl"
    so.save(_graph(), path)
    return path


def _results(graph: so.Graph, file: Path) -> Iterator[Any]:
    """Yield a result of each function, and the parts of it that are shown."""
    optimized = so.optimize(graph)
    inspection, checked, audited = so.inspect(graph), so.check(graph), so.audit(file)
    diff, derivative = so.diff(graph, optimized.graph), so.grad(graph, stages=["scanopt"])
    verified = so.verify(graph, graph_of(graph.outputs[0], graph.outputs[1] + 1), modes="plain")
    with so.enabled() as done, so.capture(file.parent / "captured") as captured:
        pt.exp(_graph().outputs[0]).eval({"square": 0.5, "n": 3})
    yield from (graph, optimized, inspection, checked, audited, diff, derivative, verified)
    yield from (done, captured, done.compilations[0], optimized.before, derivative.check)
    yield from (derivative.pedigree, derivative.orders[1], derivative.orders[1].stages[0])
    yield so.to_python(graph)
    runs = optimized.passes
    yield from (runs[0], next(remark for run in runs for remark in run.remarks))
    yield from (inspection.scans[0], inspection.scans[0].slots[0], checked.findings[0])
    yield from (audited.globals[0], diff.changes[0], verified.differences[0])
    traced = so.trace(graph)
    yield from (traced, traced.loops[0], traced.loops[0].slots[0])
    with so.nan_guard() as guard:
        pass
    yield from (so.first_difference(graph, optimized.graph), so.first_nan(graph), guard)
    yield from (derivative.pedigree.scans[0], done.compilations[0].left[0])
    yield from _made_by_hand(graph)


def _made_by_hand(graph: so.Graph) -> Iterator[Any]:
    """Yield what takes many processes to find."""
    culprit = so.Culprit(
        maker=Maker.SCANOPT, name="save-mem", number=2, of=3, why="2 in place of 1", mode="vm"
    )
    yield culprit
    yield so.Bisection(property="values", pipeline="default", culprits=(culprit,), probes=4)
    yield so.Limits()
    yield so.Reduced(
        graph=graph,
        property="values",
        pipeline="none",
        why="2 in place of 1",
        is_failing=False,
        before=9,
        after=2,
        tried=5,
        kept=3,
        remembered=0,
        is_minimal=True,
    )
    times = [Estimate(value, 0.9 * value, 1.1 * value) for value in (2e-3, 1e-3)]
    yield so.Benchmark(
        arguments="drawn, seed 0: x (1000)",
        is_drawn=True,
        clock=Clock.PROCESSOR,
        rounds=3,
        grown=(),
        measured=tuple(
            Measured(
                source=source,
                mode="vm",
                reference=reference,
                compilation=1.0,
                compilation_processor=1.0,
                compilation_memory=None,
                costs=(
                    Cost(
                        size=None,
                        processor=time,
                        wall=time,
                        ratio=None if reference is None else Estimate(0.5, 0.4, 0.6),
                        calls=9,
                        memory=1_000_000,
                    ),
                ),
                exponent=None,
                profile=None,
            )
            for source, reference, time in zip("ab", (None, 0), times, strict=True)
        ),
        bound=None,
        notes=(),
    )


@pytest.fixture(scope="module")
def results(file: Path) -> dict[str, Any]:
    found = {type(result).__name__: result for result in _results(so.load(file), file)}
    found["Check"] = so.grad(file, check=True, modes="plain").check
    return {name: result for name, result in found.items() if result is not None}


def _presented() -> set[str]:
    """Return the names of all classes of the package that show themselves."""
    trees = (ast.parse(path.read_text()) for path in Path(so.__file__).parent.rglob("*.py"))
    classes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    bases = {cls.name: {*map(ast.unparse, cls.bases)} for cls in classes}
    return {name for name, of in bases.items() if "Presented" in of and "ABC" not in of}


@pytest.mark.deep
def test_every_result_is_shown(results: dict[str, Any]) -> None:
    assert _presented() == results.keys()
    for result in results.values():
        assert in_short.dispatch(type(result)) is not in_short.dispatch(object), result


def test_every_public_type_of_a_result_shows_itself() -> None:
    types = [getattr(so, name) for name in so.__all__ if name[0].isupper()]
    for cls in types:
        if not issubclass(cls, Exception | str):
            assert issubclass(cls, Presented), cls
            assert "repr=" not in inspect.getsource(cls.__repr__), cls


def test_a_prompt_shows_one_short_line(results: dict[str, Any]) -> None:
    for name, result in results.items():
        text = repr(result)
        assert text.startswith(f"<{name}: "), text
        assert text.endswith(">")
        assert text.isprintable()
        assert len(text) <= 210


def test_lines(results: dict[str, Any], file: Path) -> None:
    assert repr(results["Graph"]) == f"<Graph: {file}: 2 inputs, 2 outputs, 11 nodes, 1 Scan>"
    shown = repr(results["OptimizeResult"])
    assert shown.startswith("<OptimizeResult: 1 Scan, changed by "), shown
    assert repr(so.optimize(_graph(), "none")) == (
        "<OptimizeResult: 1 Scan, nothing to clean up (preset none)>"
    )
    assert repr(results["Benchmark"]) == "<Benchmark: b is 2 times as fast as a (1.67 to 2.5)>"
    assert repr(results["Inspection"]) == "<Inspection: 1 loop: square>"
    assert repr(results["CheckResult"]).startswith("<CheckResult: 1 finding: 1 C002")
    assert repr(results["AuditReport"]) == f"<AuditReport: {file}: would be loaded>"
    assert "differs: " in repr(results["Verification"])
    assert repr(so.diff(_graph(), _graph())) == "<GraphDiff: the graphs are the same>"


def test_loops_that_became_fewer_or_others() -> None:
    x = pt.dscalar("x")
    two = [scan(lambda y: y**2, outputs_info=[x], n_steps=4, name=name) for name in "ab"]
    graph = graph_of(two[0][-1], two[1].sum())
    assert repr(so.optimize(graph)).startswith("<OptimizeResult: 2 Scans → 1, changed by ")
    loops = so.optimize(graph, "merge-scans,scan-to-loop")
    assert repr(loops).startswith("<OptimizeResult: 2 Scans → 1 TracedLoop, changed by ")


COMMANDS = {
    "Trace": ["trace"],
    "FirstNan": ["nan"],
    "Inspection": ["inspect"],
    "AuditReport": ["audit"],
    "PythonScript": ["python"],
    "CheckResult": ["check"],
    "Derivative": ["grad", "--no-check", "--stage", "scanopt"],
}


TABLES = {
    "Benchmark",
    "Graph",
    "OptimizeResult",
    "Inspection",
    "ScanReport",
    "Derivative",
    "AuditReport",
}
TABLES |= {"Benchmark", "Enabled", "Compilation", "Trace", "LoopTrace"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_text_is_what_the_command_prints(
    name: str, results: dict[str, Any], file: Path
) -> None:
    command, *options = COMMANDS[name]
    done = scanopt(command, file, *options, COLUMNS="100")
    assert str(results[name]) == done.out.rstrip("\n")


def test_the_text_of_optimize_is_the_report_without_findings(
    results: dict[str, Any], file: Path
) -> None:
    first, *text = filter(None, str(results["OptimizeResult"]).splitlines())
    shown = scanopt("optimize", file, COLUMNS="100").out.splitlines()
    assert shown[0].startswith(first)
    assert len(text) > 5
    assert text == [line for line in shown if line in text]


def test_texts_are_plain(results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    for result in results.values():
        lines = str(result).split("\n")
        assert all(line.isprintable() for line in lines)
        assert lines[-1].strip()
        assert max(map(len, lines)) > 20 or len(lines) == 1


def test_rich_prints_a_result_at_any_width(results: dict[str, Any]) -> None:
    for width in (40, 160):
        console = Console(width=width, force_terminal=True, color_system="standard")
        with console.capture() as captured:
            for result in results.values():
                console.print(result)
        assert "\x1b[1m" in captured.get()
        plain = Console(width=width, color_system=None)
        with plain.capture() as captured:
            plain.print(results["Inspection"])
        shown = [line.rstrip() for line in captured.get().splitlines()]
        assert max(map(len, shown)) <= width
        assert any("fed by" in line for line in shown)


def test_a_notebook_shows_tables(results: dict[str, Any]) -> None:
    for name, result in results.items():
        reader = read(result._repr_html_())
        assert reader.tags[0] == "div"
        tables = reader.tags.count("table")
        assert bool(tables) == (name in TABLES), name


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_names_of_strangers_are_text(name: str) -> None:
    graph = _graph(name)
    result = so.optimize(graph)
    with so.enabled() as done:
        function(graph.inputs, graph.outputs, name=name)
    assert done.compilations[0].function == name
    for shown in (graph, result, done, so.inspect(graph), so.check(graph), so.grad(graph, wrt=[0])):
        assert repr(shown).isprintable()
        assert all(line.isprintable() for line in str(shown).split("\n"))
        read(shown._repr_html_())


def test_results_are_data_as_before(results: dict[str, Any]) -> None:
    """They are compared and pickled by their fields."""
    for name, result in results.items():
        if not is_dataclass(result) or name in ("Graph", "OptimizeResult", "OrderReport"):
            continue
        if name not in ("Derivative", "Pedigree", "Reduced"):  # which hold graphs
            assert pickle.loads(pickle.dumps(result)) == result
        parts = {field.name: getattr(result, field.name) for field in fields(result)}
        assert type(result)(**parts) == result
        assert deepcopy(parts).keys() == parts.keys()


def test_a_long_line_is_cut() -> None:
    graph = _graph("x" * 1000)
    text = line(so.inspect(graph))
    assert len(text) == 202
    assert text.endswith("…>")


def test_findings_are_a_list_in_a_notebook() -> None:
    checked = so.check(_graph())
    assert checked.findings
    shown = checked.findings._repr_html_()
    assert shown.count("<li") == len(checked.findings)
    assert all(finding.code in shown for finding in checked.findings)
    assert checked.findings == tuple(checked.findings)
    assert pickle.loads(pickle.dumps(checked)) == checked
    assert "no finding" in so.check(([], [pt.constant(1.0)])).findings._repr_html_()
