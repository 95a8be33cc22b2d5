"""`enabled` reports: loops before and after, seconds, and what a step still computes on arrays."""

from __future__ import annotations

import io
import re
import sys
from inspect import getsourcelines
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config

import scanopt_cli as so
from scanopt_cli.integration.compilation import optimizing_stage
from support.compiled_gradients import growth
from support.graph_building import scan
from support.terminal import Shown, Terminal, at

VM = Mode("vm", "fast_run")
# The last line of the function that calls PyTensor for all tests.
WRITTEN = f"support/graph_building.py:{getsourcelines(scan)[1] + 2} in scan"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are relative to the tests."""
    monkeypatch.chdir(Path(__file__).parents[1])


def arrays(rows: Any = None) -> tuple[list[Any], list[Any]]:
    """A loop whose step multiplies a matrix of ``rows`` rows by a vector, and its gradient."""
    x = pt.tensor("x", shape=(rows,), dtype="float64")
    matrix = pt.tensor("matrix", shape=(rows, rows), dtype="float64")
    with config.change_flags(traceback__limit=8):
        ys = scan(
            lambda y, matrix: pt.tanh(matrix @ y),
            outputs_info=[x],
            non_sequences=[matrix],
            n_steps=5,
            name="net",
        )
    return [x, matrix], [ys[-1].sum()]


def test_loops_before_and_after() -> None:
    with so.enabled() as done:
        function(*growth(), mode="NUMBA", name="slope")
    (compilation,) = done.compilations
    assert compilation.function == "slope"
    assert str(compilation.place).startswith("integration/test_enabled_report.py:")
    assert str(compilation.place).endswith(" in test_loops_before_and_after")
    report = str(done)
    assert "enabled (preset loop): 1 graph with loops compiled; the passes took " in report
    row = next(line for line in report.splitlines() if "slope" in line)
    assert row.split("2 Scans")[1].split()[:2] == ["2", "TracedLoops"]
    seconds, of_which = re.split(r"   +", row.split("2 TracedLoops")[1].strip())
    assert seconds == f"{compilation.stages.total:.2f}"
    assert of_which.startswith(f"passes {compilation.seconds:.2f}, PyTensor ")
    assert compilation.stages.rewriting > 0 < compilation.stages.linking


def test_steps_on_numbers_are_told_with_the_lines_of_their_loops() -> None:
    """A pullback has the line of its loop, also if the model was built before the block."""
    with config.change_flags(traceback__limit=8):
        inputs, outputs = growth()
    with so.enabled() as done:
        function(inputs, outputs, mode="NUMBA")
    loops = done.compilations[0].left
    assert [(loop.name, loop.design) for loop in loops] == [
        ("scan_fn", "TracedLoop"),
        ("grad_of_scan_fn", "TracedLoop"),
    ]
    assert {loop.place for loop in loops} == {WRITTEN}
    assert all(loop.cost.numbers and not loop.cost.arrays for loop in loops)
    assert "2 loops left, 2 of them on numbers alone" in str(done)
    assert f"  ~ grad_of_scan_fn ({WRITTEN}): TracedLoop, " in str(done)


def test_loops_keep_their_lines_when_pytensor_pushes_sequences_out() -> None:
    with config.change_flags(traceback__limit=8):
        inputs, outputs = growth()
    with so.enabled("grad") as done:
        function(inputs, outputs, mode=VM)
    (compilation,) = done.compilations
    remarks = [remark for run in compilation.passes for remark in run.remarks]
    assert "sequences-computed" in {remark.code for remark in remarks}
    assert {loop.place for loop in compilation.left} == {WRITTEN}


def test_arrays_that_stay_are_told_with_the_reason() -> None:
    with so.enabled() as done:
        function(*arrays(), mode="NUMBA")
    report = str(done)
    assert "1 loop left, 0 of them on numbers alone" in report
    assert f"  = net ({WRITTEN}): TracedLoop, arrays: Dot (" in report
    flat = " ".join(report.split())
    assert (
        "computes `y` and `matrix` as an array: its shape is not known (if no axis is longer"
        in flat
    )
    assert "tanh" in flat


def test_known_lengths_leave_no_array() -> None:
    with so.enabled() as done:
        function(*arrays(3), mode="NUMBA")
    (loop,) = done.compilations[0].left
    assert "computes" not in str(done)
    assert not any(operation.name == "Dot" for operation in loop.cost.arrays)


def test_a_loop_that_stays_a_scan_says_why() -> None:
    with so.enabled() as done:
        function(*growth(), mode=Mode("py", "fast_run"))
    (compilation,) = done.compilations
    assert {loop.design for loop in compilation.left} == {"Scan"}
    flat = " ".join(str(done).split())
    assert (
        "stays a Scan: loops are faster by Numba, JAX and C, and the graph is compiled by" in flat
    )
    assert "2 loops left, 0 of them on numbers alone" in flat
    assert flat.count("  = ") == 0
    assert "= grad_of_scan_fn" in flat


def test_a_pipeline_that_turns_no_scans_gives_no_reason() -> None:
    with so.enabled("default") as done:
        function(*growth(), mode="NUMBA")
    assert "stays a Scan" not in str(done)
    assert "2 loops left, 0 of them on numbers alone" in str(done)


def test_loops_that_are_gone() -> None:
    x = pt.dvector("x")
    doubled = scan(lambda v: v * 2.0, sequences=[x])
    with so.enabled() as done:
        function([x], doubled, mode="NUMBA")
    (compilation,) = done.compilations
    assert compilation.left == ()
    assert "1 Scan   no loop" in str(done)
    assert "no loop is left" in str(done)


def test_graphs_that_no_pass_changed_are_reported() -> None:
    with so.enabled("scan-to-loop") as done:
        function(*growth(), mode=Mode("py", "fast_run"))
    (compilation,) = done.compilations
    assert (compilation.before.scans, compilation.after.scans) == (2, 2)
    assert len(compilation.left) == 2


def test_equal_loops_of_several_compilations_are_one_entry() -> None:
    with so.enabled() as done:
        for _ in range(2):
            function(*growth(), mode="NUMBA")
    assert len(done.compilations) == 2
    assert str(done).count("~ scan_fn") == 1
    assert f"~ scan_fn ({WRITTEN}) in 1, 2: TracedLoop" in str(done)


def test_nested_blocks_report_their_own() -> None:
    with so.enabled() as outer:
        with so.enabled("grad") as inner:
            function(*growth(), mode=VM, name="inside")
        function(*growth(), mode="NUMBA", name="around")
    assert [done.function for done in outer.compilations] == ["around"]
    assert [done.function for done in inner.compilations] == ["inside"]
    assert "inside" not in str(outer)
    assert "enabled (preset grad)" in str(inner)
    assert outer.rewriting_seconds > inner.rewriting_seconds > inner.seconds > 0


def test_time_after_a_block_does_not_count() -> None:
    with so.enabled() as done:
        function(*growth(), mode=VM)
    seconds = done.rewriting_seconds
    function(*growth(), mode=VM)
    assert done.rewriting_seconds == seconds


def test_nothing_compiled() -> None:
    with so.enabled() as done:
        pytensor.function([], pt.zeros(()))
    assert str(done) == "enabled (preset loop): no graph with a loop was compiled"
    assert repr(done).startswith("<Enabled: preset loop: 0 compilations, 0.00 s")


def test_report_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with so.enabled() as done:
        function(*growth(), mode=VM)
        assert done.report() is None
        during = capsys.readouterr().out
    done.report()
    shown = capsys.readouterr()
    assert shown.out == f"{done}\n"
    assert during.splitlines()[1:] == shown.out.splitlines()[1:]
    assert shown.err == ""
    assert "\x1b" not in shown.out


def test_report_to_a_stream_without_arrows(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    with so.enabled() as done:
        function(*growth(), mode=VM)
    monkeypatch.setattr(sys, "stdout", stream)
    done.report()
    stream.flush()
    assert b"2 Scans" in stream.buffer.getvalue()


def test_a_compilation_says_what_a_block_says() -> None:
    with so.enabled() as done:
        function(*arrays(), mode="NUMBA", name="values")
    assert str(done).split("\n\n", 1)[1] == str(done.compilations[0]).lstrip("\n")
    assert repr(done.compilations[0]).startswith("<Compilation: values: 1 Scan → 1 TracedLoop, ")


def test_what_is_only_shown_fails_no_compilation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> Any:
        raise ValueError("broken")

    monkeypatch.setattr(optimizing_stage, "left_loops", fail)
    monkeypatch.delenv("SCANOPT_STRICT")
    expected = function(*growth(), mode=VM)(np.ones(3), 0.5, 0.1)
    with so.enabled() as done, config.change_flags(on_opt_error="raise"):
        compiled = function(*growth(), mode=VM)
    np.testing.assert_allclose(compiled(np.ones(3), 0.5, 0.1)[0], expected[0])
    assert done.compilations[0].after.mit_mot == 0
    assert "what is left in the loops is not known" in caplog.text


def test_a_terminal_sees_colours() -> None:
    with so.enabled() as done:
        function(*growth(), mode=VM)
    terminal = Terminal(80)
    try:
        with at(terminal, {}):
            done.report()
    finally:
        shown = Shown(0, terminal.end())
    assert shown.colours
    assert shown.widest <= 80
    assert "2 Scans" in shown.text
