"""``scanopt view`` writes a page of graphs."""

from __future__ import annotations

import json
import shutil
import webbrowser
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest
from test_html_pages import drawn, text

from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.saving import save
from support.command_line import scanopt
from support.drawn_graphs import walk


@pytest.fixture
def here(files: Path, tmp_path: Path) -> Path:
    """A folder with graphs of its own."""
    for name in ("wasteful.pkl", "clean.pkl"):
        shutil.copy(files / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("graphs", "page"),
    [
        (["wasteful.pkl"], "wasteful.html"),
        (["sub/a.b.pkl.gz"], "a.b.html"),
        (["wasteful.pkl", "clean.pkl"], "graphs.html"),
        (["wasteful.pkl", "wasteful.pkl"], "wasteful.html"),
    ],
)
def test_the_page_is_named_after_the_graph(here: Path, graphs: list[str], page: str) -> None:
    (here / "sub").mkdir()
    shutil.copy(here / "clean.pkl", here / "sub" / "a.b.pkl.gz")
    done = scanopt("view", *graphs, cwd=here)
    assert (done.code, done.out, done.err) == (0, "", f"scanopt: wrote {page}\n")
    assert len(drawn(here / page)) == len(set(graphs))


def test_passes_are_shown_step_by_step(here: Path) -> None:
    assert scanopt("view", "wasteful.pkl", "-p", "remove-unused", cwd=here).code == 0
    (one,) = drawn(here / "wasteful.html")
    titles = [stage["title"] for stage in one["picture"]["stages"]]
    assert titles[:2] == ["as given", "remove-unused"]
    assert "Before and after" in text(here / "wasteful.html")


def test_values_are_those_of_the_recorded_call(tmp_path: Path) -> None:
    made = walk()
    recorded = ((np.asarray([1.0, 2.0]), np.asarray(0.25)),)
    save(Graph(fgraph=made.fgraph, recorded=recorded), tmp_path / "walk.pkl")
    assert scanopt("view", "walk.pkl", "--values", cwd=tmp_path).code == 0
    page = json.dumps(drawn(tmp_path / "walk.html"))
    assert "first 1, last 2, all 1..2" in page
    assert "recorded call 1" in text(tmp_path / "walk.html")
    assert scanopt("view", "walk.pkl", cwd=tmp_path).code == 0
    assert "first" not in json.dumps(drawn(tmp_path / "walk.html"))


def test_a_graph_without_loops_has_a_page(tmp_path: Path) -> None:
    x = pt.vector("x")
    save(([x], [x + 1]), tmp_path / "plain.pkl")
    done = scanopt("view", "plain.pkl", "--values", "--code", "-p", "default", cwd=tmp_path)
    assert done.code == 0
    assert "no loop in this graph" in text(tmp_path / "plain.html")


def test_a_graph_that_cannot_be_loaded_leaves_the_others(here: Path) -> None:
    (here / "bad.pkl").write_bytes(b"no pickle")
    done = scanopt("view", "bad.pkl", "clean.pkl", cwd=here)
    assert done.code == 2
    assert "bad.pkl" in done.err
    assert "bad.pkl" in text(here / "graphs.html")
    alone = scanopt("view", "bad.pkl", cwd=here)
    assert alone.code == 2
    assert not (here / "bad.html").exists()


def test_only_pages_are_replaced(here: Path) -> None:
    (here / "clean.html").write_text("mine")
    done = scanopt("view", "clean.pkl", cwd=here)
    assert done.code == 2
    why = "clean.html: is no page of scanopt's, and would be overwritten; name the page by -o PAGE"
    assert " ".join(done.err.split()) == f"scanopt: error: {why}"
    assert (here / "clean.html").read_text() == "mine"
    for _ in range(2):
        assert scanopt("view", "clean.pkl", "-o", "new.html", cwd=here).code == 0
    done = scanopt("view", "clean.pkl", "-o", "clean.pkl", cwd=here)
    assert done.code == 2
    assert done.err == "scanopt: error: clean.pkl: would be overwritten; write elsewhere\n"
    done = scanopt("view", "clean.pkl", "-o", "none/clean.html", cwd=here)
    assert "-o none/clean.html: there is no such directory" in done.err


def test_a_pipeline_that_is_malformed_ends_the_command_at_once(here: Path) -> None:
    done = scanopt("view", "none.pkl", "-p", "no-pass", cwd=here)
    assert done.code == 2
    assert "no-pass" in done.err


def test_a_browser_is_opened_only_if_asked(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) is None)
    assert scanopt("view", "clean.pkl", cwd=here).code == 0
    assert scanopt("view", "clean.pkl", "--no-open", cwd=here).code == 0
    assert opened == []
    assert scanopt("view", "clean.pkl", "--open", cwd=here).code == 0
    assert opened == [(here / "clean.html").as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    done = scanopt("view", "clean.pkl", "--open", cwd=here)
    assert "no browser can be opened" in done.err
