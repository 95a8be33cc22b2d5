"""``enabled(progress=True)`` tells on stderr what is compiled, and how long it took."""

from __future__ import annotations

import re
from pathlib import Path

import pytensor
import pytest
from pytensor.compile.mode import Mode, get_mode

import scanopt_cli as so
from scanopt_cli.integration.compilation import keeping
from scanopt_cli.store import Store
from support.compiled_gradients import ARGUMENTS, growth
from support.terminal import Shown, Terminal, at

SECONDS = r"\d+\.\d\d s"
FUNCTION = r"slope \(.*test_compilation_progress\.py:\d+ in compile_it\)"


def compile_it(mode: Mode, *, progress: bool = True) -> None:
    with so.enabled(progress=progress):
        function = pytensor.function(*growth(), mode=mode, name="slope")
        function(*ARGUMENTS)


def told(capfd: pytest.CaptureFixture[str]) -> list[str]:
    out, err = capfd.readouterr()
    assert out == ""
    return [line for line in err.splitlines() if line.startswith("scanopt: ")]


@pytest.fixture
def empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCANOPT_CACHE")
    monkeypatch.setattr(keeping, "user_store", lambda: Store(tmp_path / "kept", 1 << 26))


@pytest.mark.usefixtures("empty_store")
def test_in_a_pipe_each_stage_is_told_when_it_is_over(capfd: pytest.CaptureFixture[str]) -> None:
    compile_it(get_mode("NUMBA"))
    rewritten, compiled = told(capfd)
    by_us = rf"rewritten in {SECONDS}, \d+\.\d\d of it by scanopt's passes"
    assert re.fullmatch(f"scanopt: {FUNCTION}: {by_us}", rewritten)
    assert re.fullmatch(f"scanopt: {FUNCTION}: compiled to machine code in {SECONDS}", compiled)
    compile_it(get_mode("NUMBA"))
    (read,) = told(capfd)
    assert re.fullmatch(f"scanopt: {FUNCTION}: the rewritten graph was read in {SECONDS}", read)


def test_nothing_is_told_unless_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    compile_it(Mode("vm", "fast_run"), progress=False)
    assert told(capfd) == []


@pytest.mark.usefixtures("empty_store")
@pytest.mark.parametrize("columns", [60, 200])
def test_at_a_terminal_the_stage_is_shown_meanwhile(columns: int) -> None:
    terminal = Terminal(columns)
    try:
        with at(terminal, {}):
            compile_it(get_mode("NUMBA"))
    finally:
        shown = Shown(0, terminal.end())
    for stage in ("PyTensor's rewriting", "scanopt's passes", "machine code, by Numba and LLVM"):
        assert f"{stage}: slope (" in shown.text
    assert any(control.endswith("K") for control in shown.controls)  # the line is removed
    assert re.search(f"scanopt: {FUNCTION}: rewritten in {SECONDS}", " ".join(shown.lines))
