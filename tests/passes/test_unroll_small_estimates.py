"""`unroll-small`: loops that stay are told without the nodes of entries, and once if equal."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import pytensor.tensor as pt
import pytest

from scanopt_cli.passes.of_traced_loops.unroll_small import step, unroll_small
from support.graph_building import assert_same_values, graph_of, scan
from support.unrolling import VALUES, a, b, h, rows, unrolled


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each step that is computed, whether variables stand for entries; nothing is known."""
    found: list[bool] = []
    original = step.Step.__init__

    def init(self: Any, *args: Any, is_estimate: bool = False) -> None:
        found.append(is_estimate)
        original(self, *args, is_estimate=is_estimate)

    monkeypatch.setattr(step.Step, "__init__", init)
    monkeypatch.setattr(unroll_small, "_staying", WeakKeyDictionary())
    return found


def _filter(rows: Any, a: Any, b: Any, *, of: Any = None) -> Any:
    """A filter of three states, which stays as it is: it computes products of matrices."""

    def one(row: Any, m: Any, p: Any, a: Any, b: Any) -> Any:
        m, p = a @ m, a @ p @ a.T + b
        gain = p[:, 0] / (p[0, 0] ** 2 + 1)
        return m + gain * (row - m), p - pt.outer(gain, p[0])

    start = h if of is None else of
    found = scan(one, sequences=[rows], outputs_info=[start, pt.eye(3)], non_sequences=[a, b])
    return found[0][-1]


def _solving(rows: Any, a: Any, b: Any) -> Any:
    """A step that solves a system, which is computed entry by entry, its products as well."""

    def one(row: Any, m: Any, a: Any, b: Any) -> Any:
        return pt.linalg.solve(a @ a.T + b @ b.T + 3 * pt.eye(3), a @ m + row)

    return scan(one, sequences=[rows], outputs_info=[h], non_sequences=[a, b])[-1]


def test_no_entries_are_computed_of_a_loop_that_stays(steps, monkeypatch) -> None:
    graph = graph_of(_filter(rows, a, b))
    _, remarks = unrolled(graph, "")
    assert remarks
    assert steps
    assert all(steps)
    monkeypatch.setattr(unroll_small, "_staying", WeakKeyDictionary())
    monkeypatch.setattr(step, "stand_ins", step.entries_of)
    assert unrolled(graph, "")[1] == remarks


def test_what_an_estimate_unrolls_is_computed(steps) -> None:
    graph = graph_of(_solving(rows, a, b))
    work, remarks = unrolled(graph, "")
    assert any(remark.startswith("passed") for remark in remarks)
    assert steps[:2] == [True, False]
    assert_same_values(graph, work, **VALUES)


def test_always_needs_no_estimate(steps) -> None:
    unrolled(graph_of(_filter(rows, a, b)))
    assert steps
    assert not any(steps)


def test_steps_without_products_need_no_estimate(steps) -> None:
    last = scan(lambda row, h: pt.tanh(h + row), sequences=[rows], outputs_info=[h])[-1]
    unrolled(graph_of(last), "")
    assert not any(steps)


def test_of_equal_loops_one_is_looked_at(steps) -> None:
    """Each is remarked on."""
    other = pt.dmatrix("other", shape=(None, 3))
    _, remarks = unrolled(graph_of(_filter(rows, a, b)), "")
    n_steps = len(steps)
    both = [_filter(rows, a, b), _filter(other, b, a)]
    _, more = unrolled(graph_of(*both), "")
    assert len(steps) == n_steps
    assert len(more) == 2 * len(remarks)


def test_of_loops_that_start_with_other_lengths_each_is_looked_at(steps) -> None:
    """A length that is known from outside decides, too."""
    first = pt.dvector("first")
    _, remarks = unrolled(graph_of(_filter(rows, a, b)), "")
    n_steps = len(steps)
    _, more = unrolled(graph_of(_filter(rows, a, b, of=first)), "")
    assert len(steps) > n_steps
    assert more != remarks


def test_of_loops_of_other_sizes_each_is_looked_at(steps) -> None:
    graph = graph_of(_filter(rows, a, b))
    unrolled(graph, "")
    n_steps = len(steps)
    unrolled(graph, "{size=4}")
    assert len(steps) > n_steps
