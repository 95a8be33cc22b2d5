"""What PyTensor logs and prints of a graph is told in one line, without names that command."""

from __future__ import annotations

from pathlib import Path

import pytensor.tensor as pt
import pytest

from scanopt_cli.serialization.saving import save
from support.command_line import scanopt
from support.graph_building import graph_of


@pytest.mark.parametrize("name", ["\n::error::owned", "\x1b[31mred", "plain"])
def test_a_rewriter_that_fails_is_one_note(name: str, tmp_path: Path) -> None:
    x = pt.dvector(name)
    constant = pt.constant([1.0, 2.0, 3.0], name=name)
    save(graph_of(pt.inc_subtensor(constant[5], 1.0).sum() + x.sum()), tmp_path / "a.pkl")
    done = scanopt("optimize", tmp_path / "a.pkl", "-p", "simplify{outer=true}", "-q")
    assert done.code == 0
    (line,) = done.err.splitlines()
    assert line.startswith("scanopt: note: rewriters of PyTensor's failed on this graph")
    assert line.endswith("constant_folding")
    assert "owned" not in done.err
