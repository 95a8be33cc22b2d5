"""``optimize --verify`` writes nothing that was not proved to keep its values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.optimizing import _code, _file_if_verified
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.verification.result import Verdict, Verification
from support.graph_building import graph_of, power


@pytest.mark.parametrize(
    ("verdict", "code", "is_written"),
    [
        (Verdict.IDENTICAL, ExitCode.CLEAN, True),
        (Verdict.AGREES, ExitCode.CLEAN, True),
        (Verdict.DIFFERS, ExitCode.FINDING, False),
        (Verdict.COULD_NOT_RUN, ExitCode.FAILED, False),
    ],
)
def test_what_is_not_verified_is_not_written(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    verdict: Verdict,
    code: ExitCode,
    is_written: bool,
) -> None:
    _, xs = power()
    verification = Verification(verdict=verdict, runs=1, runs_tried=1)
    result = replace(optimize(graph_of(xs[-1])), verification=verification)
    target = tmp_path / "out.pkl"
    assert _code(Path("my graph.pkl"), result, target) is code
    assert (target in _file_if_verified(result, target, trust=False)) is is_written
    command = f"scanopt bisect 'my graph.pkl' -p {result.pipeline} --mode plain"
    told = " ".join(capsys.readouterr().err.split())
    assert (command in told) == (verdict is Verdict.DIFFERS)
