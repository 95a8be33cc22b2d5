"""The strategies side by side: which are built, which are not and why, and what each costs."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest

from scanopt_cli.autodiff import candidates
from scanopt_cli.autodiff.candidates import Candidate, CandidateStatus
from scanopt_cli.autodiff.choices import Strategy
from scanopt_cli.autodiff.derivative import Derivative
from scanopt_cli.autodiff.differentiating import grad
from scanopt_cli.reports import as_markdown
from scanopt_cli.reports.grad_report import grad_report
from support.graph_building import graph_of, power, scan
from support.printing import printed


def compared(*arguments: Any, **options: Any) -> Derivative:
    return grad(*arguments, compare=True, **options)


def by_strategy(found: Derivative) -> dict[Strategy, Candidate]:
    return {one.strategy: one for one in found.candidates if not one.is_raw}


def scalar() -> Any:
    square, xs = power(4)
    return [square], [xs[-1]]


def test_each_strategy_is_a_row_and_the_chosen_one_is_marked() -> None:
    found = compared(scalar(), 2)
    rows = by_strategy(found)
    assert set(rows) == set(Strategy) - {Strategy.AUTO}
    assert [one.strategy for one in rows.values() if one.verdict is CandidateStatus.CHOSEN] == [
        "taylor"
    ]
    assert rows[Strategy.TAYLOR].reason == found.reason
    assert (rows[Strategy.TAYLOR].cost, rows[Strategy.TAYLOR].memory) == (1.0, 1.0)
    assert "loops more" in rows[Strategy.REVERSE].reason
    (raw,) = [one for one in found.candidates if one.is_raw]
    cleaned = rows[Strategy.REVERSE]
    assert raw.statistics is not None
    assert cleaned.statistics is not None
    assert (raw.statistics.mit_mot, cleaned.statistics.mit_mot) == (3, 0)
    assert raw.cost is not None
    assert raw.cost > (cleaned.cost or 0)


@pytest.mark.deep
def test_what_is_chosen_and_counted_is_what_is_returned() -> None:
    """It is not built again, and other strategies leave it as it is."""
    alone, beside = grad(scalar(), 2), compared(scalar(), 2)
    assert alone.orders[2].statistics == beside.orders[2].statistics
    assert alone.candidates == ()


def test_at_order_one_those_that_build_the_same_are_one_row() -> None:
    assert set(by_strategy(compared(scalar()))) == {Strategy.TAYLOR, Strategy.REVERSE}
    found = by_strategy(compared(scalar(), strategy="forward-over-reverse"))
    assert set(found) == {Strategy.FORWARD_OVER_REVERSE, Strategy.FORWARD}


@pytest.mark.deep
def test_what_does_not_apply_says_why() -> None:
    v = pt.dvector("v")
    graph = graph_of(scan(lambda h: h**2, outputs_info=[v], n_steps=3)[-1])
    rows = by_strategy(compared(graph, 2))
    for strategy in (Strategy.FORWARD, Strategy.TAYLOR):
        assert rows[strategy].verdict is CandidateStatus.REFUSED
        assert "a direction for each entry of v" in rows[strategy].reason
        assert rows[strategy].statistics is None
    text = printed(grad_report(compared(graph, 2)), 200)
    assert "! forward, taylor: does not apply: forward mode needs" in text


def test_a_root_of_zero_rules_forward_mode_out() -> None:
    x = pt.dscalar("x")
    ys = scan(lambda y: pt.sqrt(y + x**2), outputs_info=[pt.zeros(())], n_steps=3)
    rows = by_strategy(compared(graph_of(ys[-1]), 2))
    assert rows[Strategy.REVERSE].verdict is CandidateStatus.CHOSEN
    others = [one for one in rows.values() if one.verdict is not CandidateStatus.CHOSEN]
    assert {one.verdict for one in others} == {CandidateStatus.REFUSED}
    assert all("NaN" in one.reason for one in others)


def test_a_whole_hessian_is_built_by_two_strategies() -> None:
    rows = by_strategy(compared(scalar(), 2, full=True))
    assert rows[Strategy.FORWARD].reason == "strategy forward builds no whole Hessian"
    assert rows[Strategy.REVERSE].verdict is CandidateStatus.COUNTED


@pytest.mark.parametrize(
    ("limit", "value", "told"),
    [
        ("_MOST_NODES", 3, "nodes to differentiate"),
        ("_MOST_SCANS", 1, "it would make"),
        ("_SECONDS", -1.0, "seconds were over"),
        ("_MOST_BUILT", 3, "not cleaned"),
    ],
)
def test_what_may_take_long_is_left_out(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: float, told: str
) -> None:
    monkeypatch.setattr(candidates, limit, value)
    found = compared(scalar())
    rows = by_strategy(found)
    assert rows[Strategy.TAYLOR].statistics is not None
    assert rows[Strategy.REVERSE].verdict is CandidateStatus.LEFT_OUT
    assert told in rows[Strategy.REVERSE].reason
    assert f"? reverse: {rows[Strategy.REVERSE].reason}" in printed(grad_report(found), 200)


def test_costs_are_formulas_and_unknown_lengths_count_alike() -> None:
    n = pt.lscalar("n")
    found = compared(graph_of(power(n)[1][-1]))
    (chosen,) = [one for one in found.candidates if one.verdict is CandidateStatus.CHOSEN]
    assert "n" in (chosen.operations or "")
    text = printed(grad_report(found), 80)
    assert "unknown lengths count as 100" in " ".join(text.split())
    fixed = printed(grad_report(compared(scalar())), 80)
    assert "count as 100" not in fixed


@pytest.mark.deep
@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_table_fits(width: int) -> None:
    text = printed(grad_report(compared(scalar(), 2)), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    rows = [line.split() for line in text.splitlines() if line.startswith(" * taylor")]
    assert width < 72 or rows == [["*", "taylor", "1", "0", "3", "0", "6", "48", "bytes", "1.00"]]


@pytest.mark.deep
def test_long_formulas_stand_below_the_table() -> None:
    n = pt.lscalar("number_of_steps")
    found = compared(graph_of(power(n)[1][-1]), 2, strategy="reverse")
    text = printed(grad_report(found), 80)
    assert "\n  reverse, as built: " in text
    assert max(map(len, text.splitlines())) <= 80


def test_formulas_are_cut_in_brief_only() -> None:
    n = pt.lscalar("number_of_steps" * 5)
    found = compared(graph_of(power(n)[1][-1]), 2, strategy="reverse")
    assert "…" in printed(grad_report(found, lines=40), 200)
    assert "…" not in printed(grad_report(found), 200)


def test_in_markdown() -> None:
    text = as_markdown.render(grad_report(compared(scalar(), 2)))
    assert r"| \* taylor | 1 | 0 | 3 | 0 | 6 | 48 bytes | 1.00 |" in text
    assert "- `*` chosen taylor: one scalar input" in text
