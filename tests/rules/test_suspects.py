"""What rules are not sure of: told where a length is not known, not where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.rules.graph_checking import check
from support.graph_building import scan
from support.seeded_graphs import dropped, dropping

type Graph = tuple[list[Any], list[Any]]

V, N, BUFFER = pt.dscalar("v"), pt.lscalar("n"), pt.dvector("buffer")


def loop_of(output: Any, name: str) -> ScanView:
    nodes = {v.owner for v in ancestors([output]) if v.owner is not None and scan_op(v.owner)}
    (view,) = (view for view in map(ScanView.of, nodes) if view.name == name)
    return view


def given_a_buffer(output: Any, name: str) -> Any:
    """Return what the loop returns if its last state has a buffer of unknown length."""
    view = loop_of(output, name)
    slot = [slot for slot in view.slots if slot.outer_output is not None][-1]
    slot.outer_input = BUFFER
    return view.rebuild()[slot.outer_output]


def trace(step: Any = pt.tanh) -> Any:
    return scan(step, outputs_info=[V], n_steps=N)


def unknown(*, is_known: bool) -> Any:
    """Return the whole buffer of a loop."""
    whole = loop_of(trace(), "scan_fn").slots[0].output
    return whole if is_known else given_a_buffer(trace(), "scan_fn")


def differentiated(*, is_known: bool) -> Graph:
    start = V if is_known else BUFFER
    return [V, N, BUFFER], [pt.grad(unknown(is_known=is_known)[-1], start)]


def last_row(*, is_known: bool) -> Graph:
    return [V, N, BUFFER], [unknown(is_known=is_known)[1:][-1]]


def two_loops(*, is_known: bool) -> Graph:
    return [V, N, BUFFER], [trace(pt.sin), unknown(is_known=is_known)]


def backward(*, is_known: bool) -> Graph:
    gradient = pt.grad(trace()[-1], V)
    if is_known:
        return [V, N, BUFFER], [gradient]
    return [V, N, BUFFER], [given_a_buffer(gradient, "grad_of_scan_fn")]


DOUBTS: dict[str, Callable[..., Graph]] = {
    "C001": differentiated,
    "C002": last_row,
    "P006": two_loops,
    "P007": backward,
    "R003": dropped,
}


@pytest.mark.parametrize("code", DOUBTS)
def test_what_is_not_known_is_a_suspect_and_no_finding(code: str) -> None:
    graph = DOUBTS[code](is_known=False)
    result = check(graph, suspects=True)
    assert code not in {finding.code for finding in result.findings}
    (suspect,) = (finding for finding in result.suspects if finding.code == code)
    assert suspect.fix is None
    assert not check(graph).suspects


@pytest.mark.parametrize("code", DOUBTS)
def test_twin_what_is_known_is_no_suspect(code: str) -> None:
    result = check(DOUBTS[code](is_known=True), suspects=True)
    assert code not in {finding.code for finding in result.suspects}
    if code != "C001":  # of which the buffers are whole
        assert code in {finding.code for finding in result.findings}


def test_suspects_follow_select_and_ignore() -> None:
    graph = two_loops(is_known=False)
    assert not check(graph, suspects=True, ignore=["P006"]).suspects
    assert check(graph, suspects=True, select=["P006"]).suspects


@pytest.mark.parametrize("is_updated", [True, False])
def test_a_generator_that_another_draw_moves_on_is_not_lost(is_updated: bool) -> None:
    inputs, (draws,) = dropping(kept=False)
    (rng,) = (v for v in ancestors([draws]) if v.name == "rng")
    after, last = pt.random.normal(rng=rng, return_next_rng=True)
    outputs = [draws, last, after] if is_updated else [draws, last]
    codes = {finding.code for finding in check((inputs, outputs), suspects=True).findings}
    assert ("R003" in codes) is not is_updated
