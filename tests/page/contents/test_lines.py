"""What is said of loops stands below the lines that wrote them."""

from __future__ import annotations

from scanopt_cli.page.contents.lines import Told, by_line
from scanopt_cli.reports.as_rich import plain


def test_files_lines_functions_loops_and_what_is_said() -> None:
    told = [
        Told("b.py:9 in step", "h", "first"),
        Told("a.py:7", "g", "second"),
        Told("b.py:2", "f", "third"),
        Told("b.py:9 in step", "h", "fourth"),
        Told("b.py:9 in step", "grad_of_h", "fifth"),
    ]
    lines = [line.strip("│├└─ \n") for line in plain(by_line(told)).splitlines()]
    assert list(filter(None, lines)) == [
        *("b.py", "line 2", "f", "third"),
        *("line 9 in step", "h", "first", "fourth", "grad_of_h", "fifth"),
        *("a.py", "line 7", "g", "second"),
    ]


def test_what_no_line_is_known_of_comes_last() -> None:
    trees = by_line([Told(None, "h", "first"), Told("a.py:1", "g", "second")])
    texts = [plain([tree]).splitlines() for tree in trees]
    assert texts[0][0].strip() == "a.py"
    assert texts[1][0].strip() == "no line known"
    assert "line 0" not in plain(trees)


def test_a_place_that_is_no_line_stands_as_it_is() -> None:
    (tree,) = by_line([Told("somewhere", "h", "first")])
    assert plain([tree]).splitlines()[0].strip() == "somewhere"


def test_lines_are_in_the_order_of_numbers() -> None:
    told = [Told(f"a.py:{line}", "h", "x") for line in (10, 9, 100)]
    text = plain(by_line(told))
    assert text.index("line 9") < text.index("line 10") < text.index("line 100")
