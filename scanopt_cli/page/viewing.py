"""`view`: a graph or a result as a page, in a notebook and in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from html import escape
from pathlib import Path
from time import perf_counter
from typing import Any

from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph

from scanopt_cli.analysis.inspection import Inspection, ScanReport, inspect_graph
from scanopt_cli.analysis.provenance.locating import locate
from scanopt_cli.autodiff.derivative import Derivative
from scanopt_cli.culprits.culprit import Bisection
from scanopt_cli.diff.changes import GraphDiff
from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph, loaded_graph
from scanopt_cli.page.contents.bisect_page import bisect_part
from scanopt_cli.page.contents.check_page import Checked, check_part
from scanopt_cli.page.contents.diff_page import Compared, diff_part
from scanopt_cli.page.contents.finding_sections import finding_blocks, tone_of
from scanopt_cli.page.contents.grad_page import grad_part
from scanopt_cli.page.contents.loop_sections import loop_sections
from scanopt_cli.page.contents.optimize_page import Optimized, optimize_part
from scanopt_cli.page.contents.parts import Part, page_of
from scanopt_cli.page.contents.slot_values import traced, with_values
from scanopt_cli.page.contents.stages import Stages, picture_of
from scanopt_cli.page.contents.step_code import code_sections
from scanopt_cli.page.contents.view_page import Viewed, value_sections, view_part
from scanopt_cli.page.page import Drawn, Page, Section
from scanopt_cli.page.writing import save_page
from scanopt_cli.pipeline.optimizing import OptimizeResult, optimize
from scanopt_cli.presentation import Presented, line_of
from scanopt_cli.reports.result_lines import in_short
from scanopt_cli.reports.result_reports import blocks
from scanopt_cli.rules.graph_checking import CheckResult, check
from scanopt_cli.rules.rule_contract import Finding
from scanopt_cli.text import plural
from scanopt_cli.tracing.result import Trace

_HEIGHT = 640
"""The height of the page in a notebook, in pixels."""


@dataclass(frozen=True, slots=True, repr=False)
class PageView(Presented):
    """A page that `view` made; a notebook shows it in a frame.

    Attributes
    ----------
    page
        What the page says, as plain data.
    height
        The height of the frame in a notebook, in pixels.
    """

    page: Page
    height: int = _HEIGHT

    def html(self) -> str:
        """Return the page as the text of one file of HTML."""
        from scanopt_cli.page.rendering import render

        return render(self.page)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to ``path``, whole or not at all; a file that is there is replaced.

        Raises
        ------
        ScanoptError
            If the file cannot be written.
        """
        save_page(self.page, Path(path))

    def _repr_html_(self) -> str:
        # In a frame of its own origin, the page reaches neither the notebook nor its cookies.
        inside = escape(self.html(), quote=True)
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{inside}"></iframe>'


@in_short.register
def _in_short(made: PageView) -> str:
    return f"{made.page.title}: {made.page.verdict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the page of a graph shows besides its picture, see `view`."""

    passes: str | None = None
    values: bool = False
    code: bool = False
    seed: int = 0
    timeout: float = 300.0


def view(
    graph_or_result: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    against: GraphLike | None = None,
    passes: str | None = None,
    values: bool = False,
    code: bool = False,
) -> PageView:
    """Show a graph, or a result, as a page: with its picture, where the result has graphs.

    In a notebook the page stands below the cell. It is one file, which needs no network.

    Parameters
    ----------
    graph_or_result
        A loaded graph, the path of its file, a FunctionGraph or an ``(inputs, outputs)`` pair; or
        what a function of scanopt returns, such as an `OptimizeResult`, a `Derivative`, a
        `CheckResult`; or findings.
    path
        Where to write the page as well. A file that is there is replaced.
    against
        A second graph, which is drawn beside the first one with the difference to it.
    passes
        The passes, or the preset, whose work on the graph is shown step by step.
    values
        Whether to show what the slots of loops hold at each step, as `trace` finds it: of the first
        recorded call, else of arguments that are drawn. Loops inside of others are run in the first
        step of these.
    code
        Whether to show a step of each distinct loop as Python source: as the graph has it, and as
        PyTensor's rewrites leave it to be compiled.

    Raises
    ------
    TypeError
        If there is no page of what was given, or an option is for graphs and it is none.
    ScanoptError
        If a graph cannot be loaded, its values cannot be traced, or the page cannot be written.
    """
    shown = Shown(passes=passes, values=values, code=code)
    if isinstance(graph_or_result, Graph | FunctionGraph | FrozenFunctionGraph | str | os.PathLike):
        is_graph = True
    else:
        is_graph = isinstance(graph_or_result, tuple) and len(graph_or_result) == 2
        is_graph = is_graph and not isinstance(graph_or_result[0], Finding)
    if not is_graph and (against is not None or shown != Shown()):
        raise TypeError(
            "against, passes, values and code are for a graph, not for "
            f"{type(graph_or_result).__name__}"
        )
    if against is not None and shown != Shown():
        raise TypeError("passes, values and code are for one graph: leave out against")
    if not is_graph:
        part = _part(graph_or_result)
    elif against is not None:
        part = _pair(_located(graph_or_result), _located(against))
    else:
        part = part_of(_located(graph_or_result), shown)
    made = PageView(page_of("scanopt_cli.view", [part]))
    if path is not None:
        made.save(path)
    return made


def part_of(graph: Graph, shown: Shown, *, progress: Callable[[str], None] | None = None) -> Part:
    """Return what a page says of a graph.

    Raises
    ------
    ScanoptError
        If its values cannot be traced, or the passes are malformed.
    """
    inspection = inspect_graph(graph.fgraph)
    trace = None
    if shown.values and inspection.scans:
        trace = traced(graph, seed=shown.seed, timeout=shown.timeout, progress=progress)
    if shown.passes is None:
        more = tuple(code_sections(graph)) if shown.code else ()
        return view_part(Viewed(graph=graph, inspection=inspection, trace=trace, more=more))
    stages = Stages(graph)
    started = perf_counter()
    result = optimize(graph, shown.passes, watch=stages.watch)
    seconds = {"optimizing": perf_counter() - started}
    more = (
        *loop_sections(inspection, is_open=False),
        *value_sections(trace),
        *(code_sections(result.graph) if shown.code else ()),
    )
    done = Optimized(
        result=result, left=check(result.graph), stages=stages, seconds=seconds, more=more
    )
    part = optimize_part(done, graph.source)
    if trace is None:
        return part
    drawn = [replace(one, picture=with_values(one.picture, trace)) for one in part.drawn]
    return replace(part, drawn=drawn)


def _located(graph: GraphLike) -> Graph:
    work = as_graph(loaded_graph(graph))
    locate(work.fgraph)
    return work


def _pair(a: Graph, b: Graph) -> Part:
    return diff_part(Compared(found=diff(a, b), graphs=(a, b)), f"{a.source} → {b.source}")


@singledispatch
def _part(result: Any) -> Part:
    """Return what a page says of a result."""
    if not isinstance(result, Presented):
        raise TypeError(
            f"there is no page of {type(result).__name__}: give a graph, or a result of scanopt's"
        )
    said = [Section(title=type(result).__name__, blocks=list(blocks(result)))]
    return Part(source=type(result).__name__, verdict=line_of(result), sections=said)


@_part.register
def _optimized(result: OptimizeResult) -> Part:
    part = optimize_part(Optimized(result=result, left=check(result.graph)), result.graph.source)
    locate(result.graph.fgraph)
    drawn = Drawn(title=result.graph.source, picture=picture_of(result.graph))
    return replace(part, drawn=[drawn])


@_part.register
def _diff(found: GraphDiff) -> Part:
    return diff_part(Compared(found=found), "a difference")


@_part.register
def _derivative(derivative: Derivative) -> Part:
    return grad_part(derivative, derivative.graph.source)


@_part.register
def _bisection(found: Bisection) -> Part:
    return bisect_part(found, "bisection")


@_part.register
def _checked(result: CheckResult) -> Part:
    return check_part(Checked(result=result), Path(result.source))


@_part.register
def _inspected(inspection: Inspection) -> Part:
    sections = list(loop_sections(inspection))
    return Part(source="loops", verdict=line_of(inspection), sections=sections)


@_part.register
def _scan(scan: ScanReport) -> Part:
    return _inspected(Inspection((scan,)))


@_part.register
def _of_trace(trace: Trace) -> Part:
    sections = [replace(each, is_open=True) for each in value_sections(trace)]
    return Part(source=trace.source, verdict=line_of(trace), sections=sections)


@_part.register(list)
@_part.register(tuple)
def _findings(findings: Sequence[Any]) -> Part:
    if not all(isinstance(finding, Finding) for finding in findings):
        kinds = {type(one).__name__ for one in findings if not isinstance(one, Finding)}
        raise TypeError(f"a list is shown of findings, not of {', '.join(sorted(kinds))}")
    said = Section(title="Findings", blocks=list(finding_blocks(findings)))
    verdict = plural(len(findings), "finding") if findings else "no finding"
    return Part(source="findings", verdict=verdict, tone=tone_of(findings), sections=[said])


@_part.register
def _finding(finding: Finding) -> Part:
    return _findings([finding])
