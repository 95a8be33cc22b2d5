"""Connection patterns of Scans, beside those that PyTensor computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.scan.op import Scan

from scanopt_cli.autodiff.connections import disconnected_rows, pattern
from scanopt_cli.ir.connection_patterns import connection_pattern
from scanopt_cli.ir.inner_graphs import body_of
from support.generated.strategies import GeneratedScan, scan_graphs
from support.real_graphs import GRAPHS


def scans(nodes: Sequence[Apply]) -> Iterator[Apply]:
    for node in nodes:
        if isinstance(node.op, Scan):
            yield node
        body = body_of(node.op)
        if body is not None:
            yield from scans(list(toposort(body.outputs)))


def check(outputs: Sequence[Variable]) -> int:
    count = 0
    for node in scans(list(toposort(outputs))):
        vars(node.tag).pop("connection_pattern", None)
        expected = [list(row) for row in node.op.connection_pattern(node)]
        vars(node.tag).pop("connection_pattern")
        assert [list(row) for row in connection_pattern(node)] == expected
        for _, _, (row, column) in disconnected_rows(node):
            expected[row][column] = True
        vars(node.tag).pop("connection_pattern", None)
        assert pattern(node) == expected
        count += 1
    return count


def test_of_real_graphs() -> None:
    assert sum(check(build()[1]) for build in GRAPHS.values()) > 10


@given(scan_graphs())
def test_of_generated_loops(graph: GeneratedScan) -> None:
    check(graph.outputs)


def test_a_state_is_connected_through_a_chain_of_states() -> None:
    """The last of 12 states depends on the first after 11 steps only; not the other way round."""
    n = 12
    starts = pt.dscalars(n)
    traces = pytensor.scan(
        lambda *states: [states[0] * 2, *states[:-1]],
        outputs_info=list(starts),
        n_steps=20,
        return_updates=False,
    )
    assert check(traces) == 1
    node = traces[-1].owner.inputs[0].owner
    table = pattern(node)
    assert [row[-1] for row in table[1 : n + 1]] == [True] * n
    assert [row[0] for row in table[1 : n + 1]] == [True] + [False] * (n - 1)


def test_pytensor_does_not_compute_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its closure takes the fourth power of the number of states."""
    x = pt.dvector("x")
    trace = pytensor.scan(lambda h: h * 2, outputs_info=x, n_steps=3, return_updates=False)
    node = trace.owner.inputs[0].owner
    monkeypatch.setattr(Scan, "get_oinp_iinp_iout_oout_mappings", None)
    assert pattern(node) == node.op.connection_pattern(node)
