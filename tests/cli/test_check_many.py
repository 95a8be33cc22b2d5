"""``scanopt check`` of many graphs: in one process, which keeps none of them."""

from __future__ import annotations

import gc
import os
import subprocess
from pathlib import Path
from typing import Any
from weakref import ref

import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.rules import graph_checking
from support.command_line import scanopt
from support.graph_building import scan
from support.tiers import examples

COUNT = examples(12, 200)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with values and gradients of different loops, and one file that is broken."""
    folder = tmp_path_factory.mktemp("many")
    for i in range(COUNT):
        x, v = pt.dvector("x"), pt.dscalar("v")
        ys, _ = scan(
            lambda a, s, i=i: [pt.tanh(s * a + i), pt.log(a + i)],
            sequences=[x],
            outputs_info=[v, None],
        )
        output = pt.grad(ys[-1], v) if i % 2 else ys[-1]
        so.save(([x, v], [output]), folder / f"{i:03}.pkl")
    broken = (folder / "002.pkl").read_bytes()[:300]
    (folder / "002_broken.pkl").write_bytes(broken)
    return folder


@pytest.mark.tiered
def test_one_process_checks_all_but_the_broken_one(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a process is started")

    for owner, name in ((subprocess.Popen, "__init__"), (os, "fork"), (os, "posix_spawn")):
        monkeypatch.setattr(owner, name, started)
    checked = graph_checking.check
    graphs = []

    def kept_track_of(graph: Any, **options: Any) -> object:
        graphs.append(ref(graph.fgraph))
        return checked(graph, **options)

    monkeypatch.setattr(graph_checking, "check", kept_track_of)
    done = scanopt("check", many, "--format", "concise", "--jobs", 0)
    assert done.code == 2
    error, summary = done.err.splitlines()
    assert summary == f"scanopt: 1 of {COUNT + 1} graphs failed"
    assert error.startswith(f"scanopt: error: {many / '002_broken.pkl'}: ")
    findings = [line for line in done.out.splitlines() if ".pkl: " in line]
    assert len({line.partition(": ")[0] for line in findings}) == COUNT
    assert f"Found {len(findings)} findings in {COUNT} of {COUNT} graphs" in done.out
    gc.collect()
    assert len(graphs) == COUNT
    assert not [graph for graph in graphs if graph() is not None]
