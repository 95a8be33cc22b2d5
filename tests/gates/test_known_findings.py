"""What a lock file knows is not told again, in graphs of other names and other order as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scanopt_cli.errors import ScanoptError
from scanopt_cli.gates.known_findings import read_baseline
from scanopt_cli.gates.lock_file import Lock, write_lock
from scanopt_cli.gates.locking import locked_graph
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.rules.graph_checking import Baseline, check
from support.seeded_graphs import apart, unused


def known(folder: Path, *graphs: Any) -> Baseline:
    path = folder / "scanopt.lock"
    held = {f"{n}.pkl": locked_graph(as_graph(graph), "0" * 64) for n, graph in enumerate(graphs)}
    write_lock(Lock(path, held))
    return read_baseline(path)


def test_what_is_locked_is_not_told_again(tmp_path: Path) -> None:
    graph = unused(read=False)
    first = check(graph)
    assert first.findings
    baseline = known(tmp_path, graph)
    again = check(graph, baseline=baseline)
    assert (again.findings, again.known) == ((), len(first.findings))
    other = check(apart(alike=True), baseline=baseline)
    assert other.findings
    assert other.known == 0
    both = known(tmp_path, graph, apart(alike=True))
    assert not check(apart(alike=True), baseline=both).findings


def test_it_holds_when_names_and_order_change(tmp_path: Path) -> None:
    inputs, outputs = apart(alike=True)
    baseline = known(tmp_path, (inputs, outputs))
    for variable in (*inputs, *outputs):
        variable.name = None if variable.name is None else f"{variable.name}_renamed"
    try:
        again = check((inputs[::-1], outputs[::-1]), baseline=baseline)
    finally:
        for variable in inputs:
            variable.name = variable.name.removesuffix("_renamed")
    assert not again.findings


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert read_baseline(None) == {}
    with pytest.raises(ScanoptError):
        read_baseline(tmp_path / "none.lock")
