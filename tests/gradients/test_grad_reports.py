"""A derivative reads well at any width, in Markdown and as JSON, whatever its names hold."""

from __future__ import annotations

import json
from typing import Any

import pytensor.tensor as pt
import pytest
from rich.console import Console

from graph_building import graph_of, power, scan
from scanopt_cli.errors import GradientError
from scanopt_cli.gradients.derivative import Derivative
from scanopt_cli.gradients.differentiating import grad
from scanopt_cli.reports import grad_markdown, grad_rich
from scanopt_cli.reports.as_json import to_json

HOSTILE = "\x1b[31m[bold]red\r\n| `x`"


@pytest.fixture(scope="module")
def derivative() -> Derivative:
    square, xs = power(4)
    return grad(([square], [xs[-1]]), 2)


def printed(renderable: Any, width: int) -> str:
    console = Console(width=width, no_color=True, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_and_the_tree_fit(derivative: Derivative, width: int) -> None:
    text = printed(grad_rich.render(derivative), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0] == "derivative of order 2 of out by x"
    rows = [line.split() for line in lines if line.strip()[:1].isdigit()]
    assert rows == [
        ["0", "1", "0", "1", "0", "0", "10", "1"],
        ["1", "2", "1", "1", "0", "1", "31", "6"],
        ["2", "4", "3", "1", "1", "4", "75", "22"],
    ]
    assert "└── square: forward; reads x" in text
    assert "├── grad_of_square#1: backward; pullback of square; depends on square" in text
    flat = " ".join(text.replace("│", " ").split())
    assert (
        "grad_of_grad_of_square: forward; pullback of grad_of_square#1; "
        "depends on square, grad_of_square#1; reads x"
    ) in flat
    assert "loop-buffer elements, order 2: 24" in text


def test_notes_and_a_scan_are_printed(derivative: Derivative) -> None:
    s = pt.dvector("s")
    noted = grad(([s], [s**2]), 2)
    text = printed(grad_rich.render(noted), 80)
    assert "note: out is not a scalar" in text
    assert "no Scan in the derivative" in text
    assert "Scan{square, while_loop=False" in printed(
        grad_rich.render(derivative, show="square"), 80
    )
    with pytest.raises(GradientError, match="no Scan called cube"):
        grad_rich.render(derivative, show="cube")


def test_markdown(derivative: Derivative) -> None:
    lines = grad_markdown.render(derivative, show="square").splitlines()
    assert "| 2 | 4 | 3 | 1 | 1 | 4 | 75 | 22 | 24 |" in lines
    assert r"- **square**: forward; reads x" in lines
    assert any(line.startswith(r"  - **grad\_of\_square\#1**: backward;") for line in lines)
    assert any(line.startswith(r"    - **grad\_of\_grad\_of\_square**: forward;") for line in lines)
    assert "    Scan{square, while_loop=False, inplace=none}" in lines


def test_json_is_the_object(derivative: Derivative) -> None:
    told = json.loads(to_json("grad", derivative))
    assert (told["command"], told["output"], told["wrt"]) == ("grad", "out", ["x"])
    assert [report["statistics"]["scans"] for report in told["orders"]] == [1, 2, 4]
    last = told["orders"][2]
    assert set(last) == {"order", "statistics", "pedigree"}
    assert set(last["pedigree"]) == {"scans"}
    pulled = last["pedigree"]["scans"][2]
    assert (pulled["name"], pulled["parent"], pulled["direction"], pulled["path"]) == (
        "grad_of_grad_of_square",
        "grad_of_square#1",
        "forward",
        [],
    )


def test_hostile_names_stay_text() -> None:
    x = pt.dscalar(HOSTILE)
    out = scan(lambda h: h**2, outputs_info=[x], n_steps=3, name=HOSTILE)[-1]
    hostile = grad(graph_of(out))
    name = hostile.pedigree.scans[0].name
    for text in (
        printed(grad_rich.render(hostile, show=name), 200),
        grad_markdown.render(hostile, show=name),
    ):
        assert "\x1b" not in text
        assert "\r" not in text
        assert "31m" in text
    assert "[bold]red" in printed(grad_rich.render(hostile), 200)
    assert json.loads(to_json("grad", hostile))["wrt"] == [HOSTILE]
