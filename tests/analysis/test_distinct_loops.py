"""Which loops are equal, what their copies differ in, and which a user means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

from scanopt_cli.analysis.distinct_loops import chosen, distinct_loops
from scanopt_cli.analysis.inspection import Inspection, inspect_graph
from scanopt_cli.errors import ScanoptError
from support.graph_building import graph_of, scan

ZERO = pt.constant(0.0, dtype="float64")
FEEDS, READERS = "what feeds them", "who reads them"
IN, STEPS, WHERE = "what they are in", "how many steps they run", "where they were written"


def total(row: Any, name: str, factor: float = 1.0, **arguments: Any) -> Any:
    return scan(
        lambda a, s: s + a * factor,
        sequences=[row],
        outputs_info=[ZERO],
        name=name,
        **arguments,
    )[-1]


def inspected(*outputs: Any) -> Inspection:
    return inspect_graph(graph_of(*outputs).fgraph)


def copies(found: Inspection) -> list[tuple[int, list[str]]]:
    return [(len(loop.copies), loop.differences) for loop in distinct_loops(found.scans)]


def test_equal_loops_are_one() -> None:
    x, y = pt.dvector("x"), pt.dvector("y")
    assert copies(inspected(total(x, "a"), total(x, "a"), total(x, "a"))) == [(3, [READERS])]
    assert copies(inspected(total(x, "a"), total(x, "a", 2.0))) == [(1, [READERS]), (1, [READERS])]
    assert copies(inspected(total(x, "a"), total(y, "b"))) == [(2, [STEPS, FEEDS])]
    assert copies(inspected(total(x, "a"), total(x + 1, "b"))) == [(2, [FEEDS])]


def test_copies_that_were_written_at_two_lines_say_so() -> None:
    x = pt.dvector("x")
    found = inspected(total(x, "a"), total(x, "b"))
    scans = [replace(s, place=f"model.py:{i}") for i, s in enumerate(found.scans)]
    assert copies(Inspection(tuple(scans))) == [(2, [WHERE])]


def test_equal_loops_in_several_bodies_are_one() -> None:
    v, x, y = pt.dvector("v"), pt.dmatrix("x"), pt.dvector("y")
    layer = OpFromGraph([v], [total(v, "a")], name="layer")
    assert copies(inspected(layer(layer(y) + y))) == [(2, [IN])]
    rows = [
        scan(lambda row, f=f: total(row, "inner") * f, sequences=[x], name="outer")
        for f in (2.0, 3.0)
    ]
    loops = distinct_loops(inspected(*rows).scans)
    assert [(loop.first.name, loop.level, len(loop.copies)) for loop in loops] == [
        ("outer#1", 0, 1),
        ("inner", 1, 2),
        ("outer#2", 0, 1),
    ]


@pytest.fixture(scope="module")
def nested() -> Inspection:
    x = pt.dmatrix("x")
    outer = [
        scan(lambda row, f=f: total(row, "inner", f), sequences=[x], name="outer")
        for f in (2.0, 3.0)
    ]
    found = inspected(*outer, total(x[0], "alone"))
    places = {"outer#1": "lib/model.py:41 in step", "outer#2": "a file.py:7", "alone": "b.py:41"}
    return Inspection(tuple(replace(s, place=places.get(s.title)) for s in found.scans))


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("alone", ["alone"]),
        ("outer#1", ["outer#1", "outer#1/inner"]),
        ("outer", ["outer#1", "outer#1/inner", "outer#2", "outer#2/inner"]),
        ("outer#2/inner", ["outer#2/inner"]),
        ("outer/inner", ["outer#1/inner", "outer#2/inner"]),
        ("inner", ["outer#1/inner", "outer#2/inner"]),
        ("41", ["outer#1", "outer#1/inner", "alone"]),
        ("model.py:41", ["outer#1", "outer#1/inner"]),
        ("lib/model.py:41", ["outer#1", "outer#1/inner"]),
        ("lib/model.py:41 in step", ["outer#1", "outer#1/inner"]),
        ("a file.py:7", ["outer#2", "outer#2/inner"]),
        ("7", ["outer#2", "outer#2/inner"]),
    ],
)
def test_a_loop_is_meant_by_its_name_or_its_line(
    nested: Inspection, text: str, titles: Sequence[str]
) -> None:
    assert sorted(scan.title for scan in chosen(nested, text).scans) == sorted(titles)


@pytest.mark.parametrize("text", ["1", "del.py:41", "oute", "outer#3", "inner/outer", ""])
def test_what_means_no_loop_is_an_error_that_lists_them(nested: Inspection, text: str) -> None:
    with pytest.raises(ScanoptError) as error:
        chosen(nested, text)
    assert f"there is no loop {text!r}; loops: " in str(error.value)
    assert "outer#1 (lib/model.py:41 in step)" in str(error.value)
    assert "outer#2/inner" in str(error.value)


def test_the_list_of_an_error_is_short() -> None:
    x = pt.dvector("x")
    found = inspected(*(total(x, "a", float(i)) for i in range(30)))
    with pytest.raises(ScanoptError, match=r"a#12 .*and 18 more") as error:
        chosen(found, "b")
    assert "a#13" not in str(error.value)
    with pytest.raises(ScanoptError, match="there is none at all"):
        chosen(Inspection(()), "b")


def test_a_name_goes_before_a_line() -> None:
    x = pt.dvector("x")
    found = inspected(total(x, "41"), total(x, "b", 2.0))
    scans = tuple(replace(scan, place="model.py:41") for scan in found.scans)
    assert [scan.name for scan in chosen(Inspection(scans), "41").scans] == ["41"]


def test_depth_counts_from_what_is_shown(nested: Inspection) -> None:
    assert all(not scan.depth for scan in chosen(nested, depth=1).scans)
    assert chosen(nested, depth=2) == nested
    assert [s.title for s in chosen(nested, "outer#1", 1).scans] == ["outer#1"]
    assert [s.title for s in chosen(nested, "outer#1/inner", 1).scans] == ["outer#1/inner"]
