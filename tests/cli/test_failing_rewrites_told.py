"""What `verify` and `optimize --verify` print of rewrites of PyTensor's that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scanopt_cli.ir.graph import substituted
from scanopt_cli.passes.of_scans.compile_safe import unit_lengths
from scanopt_cli.pipeline.contract import PassContext, Rewrite
from scanopt_cli.serialization.saving import save
from support.command_line import scanopt
from support.graph_building import optimized
from support.unit_lengths import FORMS

pytestmark = pytest.mark.usefixtures("evaluated_here")

REFUSED = FORMS["an invariant of a step that is one long"]()
SAFE = optimized(REFUSED, "compile-safe")[0]


@pytest.mark.parametrize("form", ["rich", "markdown", "json"])
def test_every_format_tells_and_the_exit_code_is_1(form: str, tmp_path: Path) -> None:
    save(SAFE, tmp_path / "safe.pkl")
    save(REFUSED, tmp_path / "refused.pkl")
    options = ["--mode", "vm", "--runs", "1", "--format", form]
    done = scanopt("verify", tmp_path / "safe.pkl", tmp_path / "refused.pkl", *options)
    assert done.code == 1
    if form == "json":
        told = json.loads(done.out)["differences"]
        assert {item["kind"] for item in told} == {"rewrite_fails"}
        assert "scan_push_out_non_seq" in {item["rewrite"] for item in told}
    else:
        assert "scan_push_out_non_seq" in done.out.replace("\\", "")


def test_optimize_writes_nothing_of_the_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Here the last pass puts back what its case 8 removes."""
    monkeypatch.setattr(unit_lengths, "declare_unit_lengths", _undeclared)
    save(SAFE, tmp_path / "safe.pkl")
    target = tmp_path / "out.pkl"
    options = ["-p", "remove-unused", "--verify", "--mode", "vm", "-o", target]
    done = scanopt("optimize", tmp_path / "safe.pkl", *options)
    assert done.code == 1
    assert not target.exists()
    assert "the result makes PyTensor's rewrites fail, and the original does not" in done.err
    assert "scan_push_out_non_seq" in done.out


def _undeclared(context: PassContext) -> Any:
    """Yield a rewrite to the graph that PyTensor refuses."""
    same = dict(zip(REFUSED.inputs, context.fgraph.inputs, strict=True))
    (output,) = context.fgraph.outputs
    yield Rewrite({output: substituted(REFUSED.outputs, same)[0]})
