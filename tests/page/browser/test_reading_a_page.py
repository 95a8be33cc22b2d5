"""What a reader asks of a page: what signs mean, what is inside, what is left out, and where."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.raise_op import Assert

import scanopt_cli as so
from conftest import Opened
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.page.page import Page
from scanopt_cli.page.picture import BoxKind
from scanopt_cli.page.rendering import SIGNS
from support.drawn_graphs import gradient, many_nodes, page, passes_of, picture
from support.graph_building import scan
from support.sample_building import samples

pytestmark = pytest.mark.browser

type Open = Callable[..., Opened]


def optimized() -> Page:
    return page(passes_of(gradient(), "grad"))


# Classes of what is drawn that carry no meaning of their own: where it stands, how it is written.
PLAIN = {"body", "end", "faint", "frame", "head", "hit", "inside", "kind", "main", "name"}
PLAIN |= {"port", "small", "surface", "tip", "title", "under", "bar-room"}


@pytest.mark.parametrize("case", ["passes", "nested", "inner graph", "many slots"])
def test_the_legend_has_all_that_is_drawn(opened: Open, case: str) -> None:
    nested = samples()["nested"]
    pages = {
        "passes": optimized,
        "nested": lambda: page(picture(nested, so.optimize(nested, "loop").graph)),
        "inner graph": lambda: page(picture(with_inner_graph())),
        "many slots": lambda: page(picture(many_slots(20))),
    }
    one = opened(pages[case]())
    for key in ("]", "b", "c", "u", "?") if case == "passes" else ("U", "?"):
        one.press(key)
    drawn = one.tab.evaluate(
        """() => {
          scanopt.select({ path: document.querySelector(".surface .box").dataset.path });
          const all = [...document.querySelectorAll(".surface, .surface [class]")];
          return [...new Set(all.flatMap((part) => [...part.classList]))];
        }"""
    )
    one.press("?")
    explained = one.tab.evaluate(
        """() => [...document.querySelectorAll(".details [class]")]
          .flatMap((part) => [...part.classList])"""
    )
    assert set(drawn) - PLAIN <= set(explained) | {"more"}
    signs = {*one.texts(".surface .sign text"), *one.texts(".surface .fold")}
    text = one.texts(".details")[0]
    assert all(sign in text for sign in signs)
    if one.count(".surface .port.more"):
        assert "more slots, which a click shows" in text


def test_the_legend_names_each_kind_of_slot_remark_and_key(opened: Open) -> None:
    one = opened(optimized())
    assert {kind.value for kind in SlotKind} <= set(one.tab.evaluate("Object.keys(PORTS)"))
    assert {kind.value for kind in BoxKind} <= set(one.tab.evaluate("Object.keys(BOXES)"))
    assert one.tab.evaluate("Object.keys(scanopt.signs)") == list(SIGNS)
    one.click("button:text-is('Legend')")
    names = one.texts(".legend dd b")
    assert {"loop", "group", "new", "gone", "mit_mot", "steps"} <= set(names)
    assert {"/", "U", "?", "Escape", "Enter"} <= set(one.texts(".legend kbd"))
    # The number of steps is no topic of `scanopt explain`, a step is.
    text = one.texts(".details")[0]
    assert "How many steps the loop runs" in text


def with_inner_graph() -> so.Graph:
    x = pt.vector("x")
    return as_graph(([x], OpFromGraph([x], [pt.exp(x)], name="wrapped")(x, return_list=True)))


def many_slots(count: int) -> so.Graph:
    xs = [pt.vector(f"x{place}") for place in range(count)]
    ys = scan(lambda *rows: sum(rows), sequences=xs)
    return as_graph((xs, [ys]))


def nest() -> so.Graph:
    """Return a graph with a loop in a loop in an inner graph, and one beside it."""
    x = pt.tensor3("x")

    def rows(row: Any) -> Any:
        return scan(lambda a, s: pt.tanh(s * a), sequences=[row], outputs_info=[row[0]], name="in")

    inner = scan(lambda m: scan(rows, sequences=[m], name="mid"), sequences=[x], name="out")
    return as_graph(
        ([x], [inner, *OpFromGraph([x], [scan(rows, sequences=[x[0]])])(x, return_list=True)])
    )


DEEPEST = """() => Math.max(...[...document.querySelectorAll(".surface .box")].map(
  (box) => box.dataset.path.split("/").length))"""


def test_unfolding_goes_one_level_deeper_each_time(opened: Open) -> None:
    one = opened(page(picture(nest())))
    depths = []
    for _ in range(4):
        depths.append(one.tab.evaluate(DEEPEST))
        one.press("u")
    assert depths == [2, 3, 4, 5]
    one.press("f", "U")
    assert one.tab.evaluate(DEEPEST) == 5
    assert one.count(".surface .box[aria-expanded=false]") == 0


def test_unfolding_all_below_a_loop_leaves_the_others_folded(opened: Open) -> None:
    one = opened(page(picture(nest())))
    one.press("f")
    one.tab.locator(".surface .box.loop > .frame").first.dispatch_event("click")
    one.press("U")
    assert one.count(".surface > g > .box.loop[aria-expanded=true]") == 1
    assert one.count(".surface > g > .box.graph[aria-expanded=true]") == 0
    assert one.count(".box.selected") == 1
    assert one.count(".box.loop .box.loop .box.loop") == 1


def test_unfolding_all_stops_where_too_many_boxes_would_be_shown(opened: Open) -> None:
    one = opened(page(picture(many_nodes(3_000))))
    one.press("U")
    assert 100 < one.count(".surface .box") <= 520
    (message,) = one.texts(".message")
    assert message.startswith("More than 500 boxes would be shown")
    one.press("f")
    assert one.texts(".message") == [""]


def test_a_whole_expression_is_shown_and_what_is_left_out_opens(opened: Open) -> None:
    x, y = pt.vectors("x", "y")
    one = opened(page(picture(as_graph(([x, y], [pt.cos(pt.tanh(pt.exp(pt.sin(x) * y) + 1))])))))
    one.tab.fill("#search", "cos")
    one.press("Enter")
    assert one.texts(".details .expression") == ["cos(tanh((exp((sin(x) * y)) + 1)))"]
    assert not one.tab.locator(".details .all").is_visible()


def test_a_long_expression_opens_piece_by_piece_and_as_a_whole(opened: Open) -> None:
    x = value = pt.vector("x")
    for _ in range(8):
        value = pt.sin(value) * value
    one = opened(page(picture(as_graph(([x], [value])))))
    one.tab.locator(".surface .box.op").last.dispatch_event("click")
    first = one.texts(".details .expression")[0]
    assert "…" in first
    one.click(".details .hole")
    second = one.texts(".details .expression")[0]
    assert len(second) > len(first)
    one.click(".details .all")
    (whole,) = one.texts(".details .expression")
    assert "…" not in whole
    assert len(whole) > 600
    assert not one.tab.locator(".details .all").is_visible()
    # It wraps, and is scrolled to in the panel.
    wide = "() => { const { scrollWidth, clientWidth } = document.querySelector('.details'); "
    assert one.tab.evaluate(wide + "return scrollWidth - clientWidth; }") <= 0


def test_a_check_tells_its_message(opened: Open) -> None:
    x = pt.vector("x")
    checked = Assert("x is empty")(x, pt.gt(x.shape[0], 0))
    one = opened(page(picture(as_graph(([x], [pt.exp(checked)])))))
    one.tab.fill("#search", "x is empty")
    one.press("Enter")
    assert (
        "raises AssertionError unless its conditions hold: x is empty" in one.texts(".details")[0]
    )
    assert "x is empty" in one.texts(".box.selected > title")[0]


def test_side_by_side_both_graphs_are_searched_and_it_is_said_which(opened: Open) -> None:
    one = opened(page(passes_of(gradient(), "mit-mot-to-sit-sot"), side_by_side=True))
    one.click(".stages li:nth-child(2) button")
    one.tab.fill("#search", "mit_mot")
    assert {text.strip() for text in one.texts(".results .where")} == {"before"}
    one.press("Enter")
    assert one.count(".pane:first-child .port.selected") == 1
    assert one.count(".pane:last-child .port.selected") == 0
    text = one.texts(".details")[0]
    assert "In the graph before the pass" in text
    assert "Slot mit_mot[0]" in text
    one.tab.fill("#search", "walk")
    assert "before and after" in {text.strip() for text in one.texts(".results .where")}
    # What is gone can be looked at and opened, too.
    one.press("Escape")
    one.click("button:text-is('Show changes')")
    one.tab.locator(".pane:first-child .is-gone > .frame").first.dispatch_event("click")
    assert "It is not in the graph" not in one.texts(".details")[0]
    one.press("b")
    one.tab.fill("#search", "mit_mot")
    assert one.count(".results .where") == 0


def test_no_two_inputs_swap_from_stage_to_stage(opened: Open) -> None:
    one = opened(page(passes_of(samples()["rnn_grad"], "grad")))
    places = """() => Object.fromEntries([...document.querySelectorAll(".surface .box.input")].map(
      (box) => [box.dataset.path, box.querySelector(".frame").getBoundingClientRect().y]))"""
    one.press("U")
    before = one.tab.evaluate(places)
    compared = 0
    for _ in one.texts(".stages li")[1:]:
        one.press("]", "U")
        after = one.tab.evaluate(places)
        for path, other in combinations(before.keys() & after.keys(), 2):
            if path.rpartition("/")[0] == other.rpartition("/")[0]:
                compared += 1
                way = (before[path] - before[other]) * (after[path] - after[other])
                assert way > 0, (path, other)
        before = after
    assert compared > 50
