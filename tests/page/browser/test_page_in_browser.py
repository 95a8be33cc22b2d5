"""A page in a real browser: clicks, search, passes step by step, the keyboard, hostile names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from screenshots import FOLDER, SHOTS, Shot, build_samples, take

import scanopt_cli as so
from conftest import Opened
from scanopt_cli.page.contents.optimize_page import Optimized, optimize_part
from scanopt_cli.page.contents.parts import page_of
from scanopt_cli.page.contents.stages import Stages
from scanopt_cli.page.page import Page, Section
from scanopt_cli.reports.document import Paragraph
from support.drawn_graphs import (
    HOSTILE,
    gradient,
    many_loops,
    many_nodes,
    page,
    passes_of,
    picture,
    walk,
)

pytestmark = pytest.mark.browser

type Open = Callable[..., Opened]


def walked() -> Page:
    return page(picture(walk()))


def optimized() -> Page:
    return page(passes_of(gradient(), "grad"))


def test_a_small_graph_is_drawn_with_its_only_loop_open(opened: Open) -> None:
    one = opened(walked())
    assert one.texts(".box.loop > text.title") == ["walk"]
    assert one.count(".box.loop[aria-expanded=true] .body .box") == 6
    assert one.count(".edge") > 6


def test_a_click_on_a_slot_tells_what_feeds_it_what_it_is_and_who_reads_it(opened: Open) -> None:
    one = opened(walked())
    assert not one.tab.locator(".details").is_visible()
    one.click(".port.kind-sit_sot > .name")
    (text,) = one.texts(".details")
    for said in (
        "Slot h",
        "a step reads the value before and writes the next",
        "tanh(",
        "x.shape[0]+1",
        "[1:]",
    ):
        assert said in text
    assert one.texts(".details .cell b") == ["t-1", "t"]
    assert one.count(".port.selected") == 1
    assert one.count(".edge.touched") == 2
    assert one.count(".body .box.touched") == 2
    one.press("Escape")
    assert not one.tab.locator(".details").is_visible()


def test_what_a_slot_is_linked_to_can_be_gone_to(opened: Open) -> None:
    one = opened(walked())
    one.click(".port.kind-seq > .name")
    one.click(".details .link")
    assert one.count(".box.op.selected") == 1


def test_a_click_on_its_head_folds_and_opens_a_loop(opened: Open) -> None:
    one = opened(walked())
    one.click(".box.loop > .title")
    assert one.count(".body") == 0
    one.click(".box.loop > .title")
    assert one.count(".body") == 1


def test_search_finds_what_is_folded_and_goes_there(opened: Open) -> None:
    one = opened(optimized())
    one.click("button:text-is('Fold all')")
    assert one.count(".body") == 0
    one.tab.fill("#search", "tanh")
    assert any("tanh" in text for text in one.texts(".results li"))
    one.press("Enter")
    assert one.count(".body .box.selected") == 1
    assert "tanh" in one.texts(".details")[0]
    seen = one.tab.locator(".surface").last.bounding_box()
    box = one.tab.locator(".box.selected > .frame").bounding_box()
    assert seen["x"] <= box["x"] <= seen["x"] + seen["width"]
    assert seen["y"] <= box["y"] <= seen["y"] + seen["height"]
    one.tab.fill("#search", "no such thing")
    assert one.texts(".results li") == ["nothing found"]


def test_passes_are_stepped_through_and_what_each_changed_is_marked(opened: Open) -> None:
    one = opened(optimized())
    stages = one.texts(".stages button span")
    assert stages[0] == "given"
    assert len(stages) > 3
    assert one.texts(".stages button[aria-current=step] span") == ["given"]
    assert one.count(".is-only, .is-changed") == 0
    marked = 0
    for stage in stages[1:]:
        one.press("]")
        assert one.texts(".stages button[aria-current=step] span") == [stage]
        assert "something" in one.texts(".remarks")[0]
        one.press("c")
        marked += one.count(".is-only, .is-changed, .is-gone")
    assert marked
    one.press("]")  # there is no next one
    assert one.texts(".stages button[aria-current=step] span") == stages[-1:]
    one.click("#back")
    assert one.texts(".stages button[aria-current=step] span") == stages[-2:-1]
    one.click(".stages button")
    assert one.texts(".stages button[aria-current=step] span") == ["given"]


def test_the_next_change_is_brought_into_sight(opened: Open) -> None:
    one = opened(optimized(), width=900, height=700)
    one.press("]")
    while not one.count(".is-only, .is-changed"):
        one.press("]")
    seen = set()
    for _ in range(3):
        one.press("n")
        path = one.tab.locator(".selected").first.get_attribute("data-path")
        seen.add(path)
        room = one.tab.locator(".surface").last.bounding_box()
        box = one.tab.locator(".box.selected > .frame").last.bounding_box()
        assert room["x"] <= box["x"] <= room["x"] + room["width"]
        assert room["y"] <= box["y"] <= room["y"] + room["height"]
    assert len(seen) == min(3, one.count(".is-only, .is-changed"))


@pytest.mark.parametrize("key", ["u", "f", "c"])
def test_whatever_is_opened_something_is_in_sight_and_fit_shows_all(opened: Open, key: str) -> None:
    one = opened(optimized())
    one.press("]", key)
    room = one.tab.locator(".surface").last.bounding_box()
    boxes = [one.tab.locator(".frame").nth(n).bounding_box() for n in range(one.count(".frame"))]
    assert any(
        room["x"] <= box["x"] <= room["x"] + room["width"]
        and room["y"] <= box["y"] <= room["y"] + room["height"]
        for box in boxes
    )
    one.click("button:text-is('Fit')")
    for n in range(one.count(".frame")):
        box = one.tab.locator(".frame").nth(n).bounding_box()
        assert room["x"] - 1 <= box["x"]
        assert box["x"] + box["width"] <= room["x"] + room["width"] + 1
        assert box["y"] + box["height"] <= room["y"] + room["height"] + 1


def test_a_pass_says_what_it_changed_and_how_long_it_took(opened: Open) -> None:
    drawn = passes_of(gradient(), "mit-mot-to-sit-sot")
    timed = replace(drawn, stages=[replace(stage, seconds=0.25) for stage in drawn.stages])
    one = opened(page(timed))
    title = one.tab.locator(".stages li:nth-child(2) button").get_attribute("title")
    assert title.startswith("mit-mot-to-sit-sot: ")
    assert title.endswith("; 0.25 s")


def listed() -> Page:
    """Return the page of two graphs, each with the table of passes."""
    parts = []
    for name in ("a.pkl", "b.pkl"):
        graph = gradient()
        stages = Stages(graph)
        result = so.optimize(graph, "merge-equal,mit-mot-to-sit-sot", watch=stages.watch)
        done = Optimized(result=result, left=so.check(result.graph), stages=stages)
        parts.append(optimize_part(done, name))
    return page_of("scanopt optimize", parts)


def test_a_click_on_a_row_of_passes_goes_to_its_stage_and_stepping_marks_the_row(
    opened: Open,
) -> None:
    one = opened(listed())
    first, second = (f"table.runs[data-drawn='{place}']" for place in (0, 1))
    for section in ("a.pkl: Passes", "b.pkl: Passes"):
        one.click(f"h2:has-text('{section}')")
    assert one.texts(".runs .is-current .pass") == ["as given"]
    one.click(f"{first} tbody[data-stage='2'] .change")
    stages = one.texts(".stages button span")
    assert one.texts(".stages button[aria-current=step] span") == [stages[2]]
    assert one.texts(".runs .is-current .pass") == [stages[2]]
    assert one.texts(".runs .go[aria-current=step]") == [stages[2]]
    one.press("[")
    assert one.texts(f"{first} .is-current .pass") == [stages[1]]
    # The counts of the bar stand in the table as well.
    bar = one.texts(".stages li:nth-child(2) small")
    assert one.texts(f"{first} tbody[data-stage='1'] .change b") == bar
    # The table of the other graph goes to its picture.
    one.click(f"{second} tbody[data-stage='1'] .go")
    assert one.tab.locator("select").input_value() == "1"
    assert one.count(f"{first} .is-current") == 0
    assert one.texts(f"{second} .is-current .pass") == [stages[1]]
    # What a pass says is folded, and told with its sign.
    one.click(f"{second} tbody[data-stage='1'] summary")
    assert one.tab.locator(f"{second} tbody[data-stage='1'] .remarked").is_visible()
    assert one.texts(f"{second} tbody[data-stage='1'] .kind")[0] == "~"


def test_signs_are_explained_and_the_text_can_be_put_away(opened: Open) -> None:
    one = opened(optimized())
    one.press("?")
    assert "how much memory the buffer takes" in one.texts(".details")[0]
    assert one.tab.locator("#text").is_visible()
    one.press("w")
    assert not one.tab.locator("#text").is_visible()


def test_search_says_in_which_stage_something_is(opened: Open) -> None:
    one = opened(optimized())
    one.click(".stages li:last-child button")
    one.tab.fill("#search", "mit_mot")
    (found,) = one.texts(".results li")
    assert found.startswith("not in this stage; in given")


def test_before_and_after_are_side_by_side(opened: Open) -> None:
    stages = passes_of(gradient(), "mit-mot-to-sit-sot")
    two = replace(stages, stages=stages.stages[:2])
    one = opened(page(two, side_by_side=True))
    assert one.texts(".caption") == ["before: given", "after: mit-mot-to-sit-sot"]
    one.press("c")
    assert one.count(".pane:first-child .is-gone") > 0
    assert one.count(".pane:last-child .is-only") > 0
    assert one.count(".pane:first-child .port.kind-mit_mot") == 1
    assert one.count(".pane:last-child .port.kind-mit_mot") == 0
    one.press("b")
    assert one.count(".pane:visible") == 1


def test_the_keyboard_reaches_everything(opened: Open) -> None:
    one = opened(walked())
    one.tab.locator(".surface").last.focus()
    one.press("ArrowRight")
    first = one.tab.locator(".box.selected").get_attribute("data-path")
    one.press("ArrowRight")
    assert one.tab.locator(".box.selected").get_attribute("data-path") != first
    one.press("f")
    for _ in range(8):
        if one.count(".box.loop.selected"):
            break
        one.press("ArrowRight")
    one.press("Enter")
    assert one.count(".box.loop[aria-expanded=true]") == 1
    focused = "document.activeElement.dataset.path"
    assert one.tab.evaluate(focused) == one.tab.locator(".box.loop").get_attribute("data-path")
    one.press("ArrowRight")
    assert one.tab.evaluate(focused) == one.tab.locator(".selected").get_attribute("data-path")
    one.press("/")
    assert one.tab.evaluate("document.activeElement.id") == "search"
    before = one.tab.locator(".surface > g").last.get_attribute("transform")
    one.tab.locator(".surface").last.focus()
    one.press("+")
    assert one.tab.locator(".surface > g").last.get_attribute("transform") != before


def test_a_drag_moves_the_drawing_and_selects_nothing(opened: Open) -> None:
    one = opened(walked())
    seen = one.tab.locator(".surface").last.bounding_box()
    before = one.tab.locator(".surface > g").last.get_attribute("transform")
    one.tab.mouse.move(seen["x"] + 200, seen["y"] + 200)
    one.tab.mouse.down()
    one.tab.mouse.move(seen["x"] + 260, seen["y"] + 230, steps=4)
    one.tab.mouse.up()
    assert one.tab.locator(".surface > g").last.get_attribute("transform") != before
    assert one.count(".selected") == 0


def test_names_of_a_graph_are_shown_and_do_nothing(opened: Open) -> None:
    hostile = page(picture(walk(HOSTILE)), title=HOSTILE)
    one = opened(replace(hostile, sections=[Section(title=HOSTILE, blocks=[Paragraph(HOSTILE)])]))
    one.click(".port.kind-sit_sot > .name")
    one.tab.fill("#search", "onerror")
    assert any("onerror" in text for text in one.texts(".results li"))
    assert one.tab.evaluate("window.hacked") is None
    assert one.count("img") == 0
    assert HOSTILE in one.texts("h1")[0]


def test_the_policy_of_the_page_lets_no_other_script_run(opened: Open) -> None:
    one = opened(walked())
    one.tab.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.hacked = 1";
          document.body.append(script);
        }"""
    )
    assert one.tab.evaluate("window.hacked") is None
    assert any("Content Security Policy" in text for text in one.complaints)
    one.complaints.clear()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_stand_out_from_their_ground(opened: Open, theme: str) -> None:
    one = opened(optimized(), color_scheme=theme)
    one.press("]")
    contrasts = one.tab.evaluate(
        """() => {
          const root = getComputedStyle(document.documentElement);
          const light = (name) => {
            const [r, g, b] = root.getPropertyValue(name).trim().match(/[\\da-f]{2}/gi)
              .map((hex) => parseInt(hex, 16) / 255)
              .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const found = {};
          for (const ink of ["ink", "faint", "good", "bad", "warning"]) {
            for (const ground of ["ground", "panel", "frame"]) {
              const [a, b] = [light(`--${ink}`), light(`--${ground}`)].sort((x, y) => y - x);
              found[`${ink} on ${ground}`] = (a + 0.05) / (b + 0.05);
            }
          }
          return found;
        }"""
    )
    assert {pair for pair, ratio in contrasts.items() if ratio < 4.5} == set()


def test_the_theme_can_be_changed(opened: Open) -> None:
    one = opened(walked(), color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = one.tab.evaluate(ground)
    one.click("button[title='Light or dark']")
    assert one.tab.evaluate(ground) != before


def test_every_control_has_a_name_and_changes_are_told_in_words(opened: Open) -> None:
    one = opened(optimized())
    one.press("]", "c")
    nameless = one.tab.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [role=button]")]
          .filter((part) => !part.ariaLabel && !part.textContent.trim())
          .map((part) => part.outerHTML)"""
    )
    assert nameless == []
    labels = one.tab.evaluate(
        "() => [...document.querySelectorAll('.is-changed')].map((part) => part.ariaLabel)"
    )
    assert labels
    assert all(label.endswith(", changed") for label in labels)
    assert one.texts(".is-changed > .sign text") == ["~"] * len(labels)


def test_a_narrow_screen_scrolls_in_one_direction_only(opened: Open) -> None:
    one = opened(optimized(), width=380, height=800)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert one.tab.evaluate(wide) <= 0


def test_a_print_has_the_text_and_the_picture_and_no_tools(opened: Open) -> None:
    one = opened(listed())
    one.tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    one.tab.emulate_media(media="print")
    assert not one.tab.locator(".tools").is_visible()
    assert one.tab.locator(".surface").last.is_visible()
    assert one.tab.locator(".section").first.is_visible()
    # All of the text is there, and nothing of it is cut.
    assert one.tab.locator("#text .remarked").last.is_visible()
    cut = "() => { const { scrollHeight, clientHeight } = document.getElementById('text'); "
    assert one.tab.evaluate(cut + "return scrollHeight - clientHeight; }") <= 1


def test_of_several_graphs_one_is_chosen(opened: Open) -> None:
    one = opened(page(picture(walk()), picture(many_nodes(3))))
    one.tab.locator("select").select_option("1")
    one.ready()
    assert one.count(".box.loop") == 0


@pytest.mark.parametrize(
    "graph", [many_nodes(1_000), pytest.param(many_nodes(10_000), marks=pytest.mark.deep)]
)
def test_a_large_graph_is_folded_and_opens_part_by_part(opened: Open, graph: object) -> None:
    one = opened(page(picture(graph)))  # type: ignore[arg-type]
    assert one.count(".box") == 4
    one.click(".box.group")
    assert 4 < one.count(".box") < 60
    one.tab.fill("#search", "mul")
    one.press("Enter")
    assert one.count(".box.selected") == 1
    one.click("button:text-is('Fold all')")
    assert one.count(".box") == 4


def test_many_loops_are_in_groups(opened: Open) -> None:
    one = opened(page(picture(many_loops(60))))
    assert one.count(".box") < 60
    one.tab.fill("#search", "loop#40")
    one.press("Enter")
    assert one.texts(".box.selected > .title") == ["loop#40"]
    assert "equal ones" in "".join(one.texts(".box.selected text"))


@pytest.fixture(scope="module")
def sample_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    build_samples(folder)
    return folder


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
def test_the_screenshots_of_the_docs_can_be_taken(
    browser: object, shot: Shot, sample_files: Path
) -> None:
    pytest.importorskip("pymc", reason="one of the sample graphs is a model")
    assert take(browser, shot, sample_files).startswith(b"\x89PNG")
    assert (FOLDER / f"{shot.name}.png").exists()
