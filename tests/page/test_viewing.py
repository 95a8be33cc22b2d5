"""`view` takes graphs and results, and says what it does not take."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.page.writing import may_replace
from support.drawn_graphs import HOSTILE, gradient, walk


@pytest.fixture(scope="module")
def graph() -> so.Graph:
    return walk()


def test_all_forms_of_a_graph_give_the_same_page(graph: so.Graph, tmp_path: Path) -> None:
    path = tmp_path / "walk.pkl"
    so.save(graph, path)
    pages = [so.view(form).page for form in (graph, graph.fgraph, (graph.inputs, graph.outputs))]
    assert pages[0] == pages[1] == pages[2]
    for form in (path, str(path)):
        page = so.view(form).page
        assert page.title == str(path)
        assert page.drawn[0].picture.levels == pages[0].drawn[0].picture.levels


def test_the_graph_stays_as_it_is(graph: so.Graph) -> None:
    before = so.digest(graph)
    so.view(graph, passes="default", values=True, code=True)
    assert so.digest(graph) == before


def test_passes_values_and_code(graph: so.Graph) -> None:
    page = so.view(graph, passes="default", values=True, code=True).page
    assert {"Times", "Values at each step", "Steps as Python source", "Loops"} <= {
        section.title for section in page.sections
    }
    picture = page.drawn[0].picture
    assert len(picture.stages) > 1
    assert any(
        port.values for box in picture.levels[picture.stages[0].level].boxes for port in box.ports
    )


def test_a_graph_without_loops_has_no_values() -> None:
    x = pt.vector("x")
    page = so.view(([x], [x + 1]), values=True).page
    assert page.verdict == "1 input, 1 output, 2 nodes, no loop"


def test_two_graphs_stand_beside_each_other(graph: so.Graph) -> None:
    page = so.view(graph, against=gradient()).page
    assert page.drawn[0].side_by_side
    assert len(page.drawn[0].picture.stages) == 2


def test_results_have_pages(graph: so.Graph) -> None:
    result = so.optimize(graph)
    findings = so.check(gradient()).findings
    assert findings
    for given, n_drawn in (
        (result, 1),
        (so.diff(graph, gradient()), 0),
        (so.grad(graph, check=False), 1),
        (so.check(graph), 0),
        (so.inspect(graph), 0),
        (so.inspect(graph).scans[0], 0),
        (so.trace(graph), 0),
        (result.passes[0], 0),
        (findings, 0),
        (list(findings), 0),
        (findings[0], 0),
        ([], 0),
    ):
        made = so.view(given)
        assert len(made.page.drawn) == n_drawn
        assert made.page.verdict
        assert made.html().startswith("<!doctype html>")


@pytest.mark.parametrize("given", [None, 3, {}, [1, 2, 3], object(), pt.vector("x"), ["a", None]])
def test_what_has_no_page_is_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match=r"there is no page of|is shown of findings"):
        so.view(given)


@pytest.mark.parametrize(
    "options", [{"passes": "default"}, {"values": True}, {"code": True}, {"against": "x.pkl"}]
)
def test_options_of_graphs_are_not_for_results(graph: so.Graph, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="are for a graph, not for CheckResult"):
        so.view(so.check(graph), **options)
    if "against" not in options:
        with pytest.raises(TypeError, match="leave out against"):
            so.view(graph, against=graph, **options)


def test_errors_name_what_is_wrong(graph: so.Graph, tmp_path: Path) -> None:
    with pytest.raises(so.LoadError, match="no such file"):
        so.view(tmp_path / "none.pkl")
    with pytest.raises(so.PassError, match="no-pass"):
        so.view(graph, passes="no-pass")
    with pytest.raises(so.ScanoptError, match="cannot be written"):
        so.view(graph, tmp_path / "none" / "page.html")


def test_a_page_is_written(graph: so.Graph, tmp_path: Path) -> None:
    made = so.view(graph, tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text() == made.html()
    made.save(str(tmp_path / "b.html"))
    assert (tmp_path / "b.html").read_bytes() == (tmp_path / "a.html").read_bytes()
    assert may_replace(tmp_path / "a.html")


def test_the_same_graph_is_the_same_page() -> None:
    assert so.view(gradient(), values=True, code=True).html() == (
        so.view(gradient(), values=True, code=True).html()
    )


def test_a_notebook_shows_the_page_in_a_frame_of_its_own_origin(graph: so.Graph) -> None:
    made = so.view(graph)
    shown = made._repr_html_()
    found = re.fullmatch(
        r'<iframe sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>', shown
    )
    assert found is not None
    assert unescape(found[1]) == made.html()
    assert repr(made) == f"<PageView: <memory>: {made.page.verdict}>"
    assert str(made) == f"<memory>: {made.page.verdict}"


def test_hostile_names_are_text(graph: so.Graph) -> None:
    usual, hostile = so.view(graph), so.view(walk(HOSTILE))
    assert hostile.html().count("<script") == usual.html().count("<script")
    assert 'onerror="' not in hostile.html()
    assert "7*7" in hostile.html()
    inside = hostile._repr_html_()
    assert inside.count("<") == 2
    assert inside.count('"') == 6


@pytest.mark.parametrize("name", ["a\u202eb", "a\nb", "a\x1b[31mb", "{{ 7*7 }}", "{% raw %}"])
def test_names_hide_nothing_in_the_text(name: str) -> None:
    text = so.view(walk(name)).html()
    body = text[text.index("<body>") :].partition("<script")[0]
    assert not re.search("[\u202e\x1b]", body)
    assert "a\nb" not in body
    if "%" in name or "{" in name:
        assert name in body
