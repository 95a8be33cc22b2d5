"""Pages of graphs of growing size: how long they take to write and to open, and how large they are.

Opened from disk in Chromium, until the picture is drawn; needs scanopt[browser].
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import pytest

from scanopt_cli.page.rendering import render
from scanopt_cli.text import three_digits
from support.browsing import READY, chromium
from support.drawn_graphs import many_loops, many_nodes, page, picture

GRAPHS = {
    "100 nodes": lambda: many_nodes(100),
    "1,000 nodes": lambda: many_nodes(1_000),
    "10,000 nodes": lambda: many_nodes(10_000),
    "10 loops": lambda: many_loops(10),
    "100 loops": lambda: many_loops(100),
    "1,000 loops": lambda: many_loops(1_000),
}
TIMES = 3


@pytest.mark.parametrize("name", GRAPHS)
def test_writing(benchmark, name: str) -> None:
    """From a loaded graph to the text of the page."""
    if benchmark.disabled and name not in ("100 nodes", "10 loops"):
        pytest.skip("larger ones are measured by `make bench`")
    graph = GRAPHS[name]()
    benchmark.group = f"write a page: {name}"
    text = benchmark.pedantic(lambda: render(page(picture(graph))), rounds=TIMES)
    assert "</html>" in text


def test_all(benchmark, show_table, tmp_path) -> None:
    """Print seconds to write, kilobytes, seconds to open, and boxes that are drawn at first."""
    if benchmark.disabled:
        pytest.skip("all are measured by `make bench`")
    pytest.importorskip("playwright", reason="opens pages in a browser: scanopt[browser]")
    rows: list[list[str]] = []

    def measure() -> None:
        with chromium() as browser:
            for name, build in GRAPHS.items():
                graph = build()
                started = perf_counter()
                text = render(page(picture(graph)))
                written = perf_counter() - started
                file = tmp_path / "page.html"
                file.write_text(text, "utf-8")
                seconds, boxes = [], 0
                for _ in range(TIMES):
                    tab = browser.new_page(viewport={"width": 1400, "height": 900})
                    started = perf_counter()
                    tab.goto(file.as_uri())
                    tab.wait_for_selector(READY, state="attached")
                    seconds.append(perf_counter() - started)
                    boxes = tab.locator(".box").count()
                    tab.close()
                nodes = len(graph.fgraph.apply_nodes)
                figures = [three_digits(written), str(len(text) // 1000)]
                opened = three_digits(median(seconds))
                rows.append([name, f"{nodes:,}", *figures, opened, str(boxes)])

    benchmark.pedantic(measure, rounds=1)
    heads = ("", "nodes outside", "written, s", "kB", "opened, s", "boxes at first")
    show_table("pages", heads, rows)
