"""A derivative reads well at any width, in Markdown and as JSON, whatever its names hold."""

from __future__ import annotations

import json
from dataclasses import replace

import pytensor.tensor as pt
import pytest

from scanopt_cli.autodiff import stages
from scanopt_cli.autodiff.derivative import Check, Derivative, Outcome
from scanopt_cli.autodiff.differentiating import grad
from scanopt_cli.errors import GradientError
from scanopt_cli.reports import as_markdown
from scanopt_cli.reports.as_json import to_json
from scanopt_cli.reports.grad_report import grad_report, rows
from support.graph_building import graph_of, power, scan
from support.printing import printed

_LABELS = ("0 ", "- scanopt ", "taylor ", "reverse ")
HOSTILE = "\x1b[31m[bold]red\r\n| `x`"


@pytest.fixture(scope="module")
def derivative() -> Derivative:
    square, xs = power(4)
    return grad(([square], [xs[-1]]), 2, strategy="reverse")


@pytest.fixture(scope="module")
def compared() -> Derivative:
    square, xs = power(4)
    graph = ([square], [xs[-1]])
    first, second = (grad(graph, 2, strategy=s, stages=["scanopt"]) for s in ("auto", "reverse"))
    return replace(first, compared=(second,))


def marked(derivative: Derivative, show: str | None = None) -> str:
    return as_markdown.render(grad_report(derivative, show=show))


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_and_the_tree_fit(derivative: Derivative, width: int) -> None:
    text = printed(grad_report(derivative), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0] == "derivative of order 2 of out by x"
    rows = [line.split() for line in lines if line.strip().startswith(("0 ", "reverse "))]
    assert rows == [
        ["0", "1", "0", "1", "0", "10", "1", "40", "bytes"],
        ["reverse", "1", "2", "1", "1", "0", "31", "6", "80", "bytes"],
        ["reverse", "2", "4", "3", "1", "1", "75", "22", "192", "bytes"],
    ]
    assert "└── square: forward; reads x" in text
    assert "├── grad_of_square#1: backward; pullback of square; depends on square" in text
    flat = " ".join(text.replace("│", " ").split())
    assert (
        "grad_of_grad_of_square: forward; pullback of grad_of_square#1; "
        "depends on square, grad_of_square#1; reads x"
    ) in flat


@pytest.mark.deep
@pytest.mark.parametrize("width", [80, 200])
def test_strategies_stand_in_one_table(compared: Derivative, width: int) -> None:
    text = printed(grad_report(compared), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text
    flat = " ".join(text.split())
    assert "strategy taylor: one scalar input: one loop, with 3 states for each state" in flat
    labels = [line[:12].strip() for line in lines if line.lstrip().startswith(_LABELS)]
    graphs = ("0", "taylor 1", "taylor 2", "reverse 1", "reverse 2")
    assert labels == [label for graph in graphs for label in (graph, "- scanopt")]
    assert "└── rop_of_rop_of_square: forward; rop_of_square with its tangents; reads x" in text
    assert "| taylor 2 | 1 | 0 | 3 | 0 |" in marked(compared)
    told = json.loads(to_json("grad", compared))
    assert (told["strategy"], told["compared"][0]["strategy"]) == ("taylor", "reverse")
    assert told["orders"][2]["stages"][0]["statistics"]["scans"] == 1


@pytest.mark.parametrize("width", [*range(30, 80, 7), 71, 72, 80])
def test_all_numbers_are_shown_whole(derivative: Derivative, width: int) -> None:
    text = printed(grad_report(derivative), width)
    words = text.replace(",", " ").split()
    for row in rows(derivative):
        assert {*row.graph.split(), *row.counts, *row.buffers.split()} <= {*words}
    assert "…" not in text


def test_what_is_compared_was_compiled_by_the_same_rewrites() -> None:
    """PyTensor fuses elementwise nodes; counts from before and after that do not compare."""
    x = pt.dscalar("x")
    ys = scan(lambda y: pt.tanh(y * x) + pt.sin(y) * 2, outputs_info=[x], n_steps=5)
    found = grad(graph_of(ys[-1]), stages=["pytensor", "scanopt", "both"])
    counts = {str(one.stage): one.statistics for one in found.orders[1].stages}
    assert counts["both"].inner_nodes <= counts["pytensor"].inner_nodes
    assert counts["pytensor"].inner_nodes < counts["scanopt"].inner_nodes
    text = printed(grad_report(found), 80)
    assert "scanopt, compiled: after `scanopt optimize -p grad`, t" in text
    assert "| - scanopt, compiled |" in marked(found)
    assert "compiled: after PyTensor's rewrites alone" in marked(found)


def test_stages_for_which_no_time_is_left_are_a_note() -> None:
    square, xs = power(4)
    found = grad(([square], [xs[-1]]), stages=["pytensor"], stage_timeout=0)
    assert [one.stages for one in found.orders] == [(), ()]
    assert "order 1 has no counts for the stage pytensor: PyTensor's rewrites" in found.notes[-1]
    assert found.notes[-1] in printed(grad_report(found), 200)


def test_rewrites_are_stopped_when_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    _, xs = power(4)
    clock = iter([0.0])
    monkeypatch.setattr(stages, "thread_time", lambda: next(clock, 2.0))
    with pytest.raises(stages.RewriteTimeoutError, match="take too long"):
        stages.StagedGraph(graph_of(xs[-1])).after(stages.Stage.PYTENSOR, deadline=1.0)
    assert next(clock, None) is None


def test_long_formulas_stand_below() -> None:
    n = pt.lscalar("number_of_steps")
    found = grad(graph_of(power(n)[1][-1]), 2, strategy="reverse")
    text = printed(grad_report(found), 80)
    assert "  reverse 2, as built:" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("check", "told"),
    [
        (
            Check(outcome=Outcome.AGREES, against="reverse mode", runs=9, runs_tried=10),
            "taylor: agrees with reverse mode on 9 of 10 runs",
        ),
        (
            Check(outcome=Outcome.NOT_CHECKED, against="nothing", reason="no answer within 120 s"),
            "taylor: not checked: no answer within 120 s",
        ),
    ],
)
def test_a_check_is_told(compared: Derivative, check: Check, told: str) -> None:
    checked = replace(compared, check=check)
    assert told in printed(grad_report(checked), 80)
    assert f"- {told}" in marked(checked)


def test_notes_and_a_scan_are_printed(derivative: Derivative) -> None:
    s = pt.dvector("s")
    noted = grad(([s], [s**2]), 2)
    text = printed(grad_report(noted), 80)
    assert "note: out is not a scalar" in text
    assert "no loop in this graph, nor in the derivative\n" in text
    assert "Scans" not in text
    assert "pedigree" not in text
    assert "Scan{square, while_loop=False" in printed(grad_report(derivative, show="square"), 80)
    with pytest.raises(GradientError, match="no Scan called cube"):
        printed(grad_report(derivative, show="cube"), 80)


def test_markdown(derivative: Derivative) -> None:
    lines = marked(derivative, "square").splitlines()
    assert "| reverse 2 | 4 | 3 | 1 | 1 | 75 | 22 | 192 bytes |" in lines
    assert r"- **square**: forward; reads x" in lines
    assert any(line.startswith(r"  - **grad\_of\_square\#&#8203;1**: backward;") for line in lines)
    assert any(line.startswith(r"    - **grad\_of\_grad\_of\_square**: forward;") for line in lines)
    assert "Scan{square, while_loop=False, inplace=none}" in lines


def test_json_is_the_object(derivative: Derivative) -> None:
    told = json.loads(to_json("grad", derivative))
    assert (told["command"], told["output"], told["wrt"]) == ("grad", "out", ["x"])
    assert [report["statistics"]["scans"] for report in told["orders"]] == [1, 2, 4]
    last = told["orders"][2]
    assert set(last) == {"order", "statistics", "stages", "pedigree"}
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
    hostile = grad(graph_of(out), strategy="reverse")
    name = hostile.pedigree.scans[0].name
    for text in (
        printed(grad_report(hostile, show=name), 200),
        marked(hostile, name),
    ):
        assert "\x1b" not in text
        assert "\r" not in text
        assert "31m" in text
    assert "[bold]red" in printed(grad_report(hostile), 200)
    assert json.loads(to_json("grad", hostile))["wrt"] == [HOSTILE]
