"""Programs of every kind, run with capturing on and none the wiser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from scanopt_cli.environment import CAPTURE
from scanopt_cli.errors import ScanoptError
from scanopt_cli.integration.capture.captured_program import run_captured
from scanopt_cli.serialization.loading import load
from support.evaluating import assert_same_outcomes, evaluate
from support.tiers import deep

PROGRAM = """
import sys
import numpy as np
import pytensor.tensor as pt
from pytensor import function, scan

x = pt.vector("x")
def powers(steps):
    return scan(lambda h, b: h * b, outputs_info=[pt.ones_like(x)], non_sequences=[x],
                n_steps=steps, return_updates=False)
two, three = function([x], powers(2), name="two"), function([x], powers(3), name="three")
plain = function([x], x + 1)
print(sys.argv[1:], two([2.0]).tolist(), three([2.0]).tolist(), plain([2.0]).tolist())
"""


@pytest.fixture(autouse=True)
def quick_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = os.environ.get("PYTENSOR_FLAGS", "")
    monkeypatch.setenv("PYTENSOR_FLAGS", f"{flags},mode=FAST_COMPILE")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + "sys.exit(3)\n")
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


KEPT = [
    *("001_two.scanopt", "001_two.values.npz", "002_three.scanopt", "002_three.values.npz"),
    "index.json",
]


def test_a_script(program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    graphs = tmp_path / "graphs"
    code = run_captured([sys.executable, str(program), "-x", "one two"], graphs)
    out, err = capfd.readouterr()
    assert (code, err) == (3, "")
    assert out == "['-x', 'one two'] [[2.0], [4.0]] [[2.0], [4.0], [8.0]] [3.0]\n"
    assert names(graphs) == KEPT
    graph = load(graphs / "002_three.scanopt")
    values = evaluate(graph.inputs, graph.outputs, graph.recorded[0])
    assert_same_outcomes([[[2.0], [4.0], [8.0]]], values)


def test_only_what_is_of_interest(program: Path, tmp_path: Path) -> None:
    argv = [sys.executable, str(program)]
    assert run_captured(argv, tmp_path / "graphs", on_slow=1000.0, on_error=True) == 3
    assert names(tmp_path / "graphs") == []
    assert run_captured(argv, tmp_path / "graphs", on_slow=1e-9) == 3
    assert names(tmp_path / "graphs") == KEPT


@pytest.mark.deep
def test_a_module(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_captured([sys.executable, "-m", "program"], "graphs") == 3
    assert names(tmp_path / "graphs") == KEPT


@pytest.mark.deep
def test_a_program_that_starts_another(program: Path, tmp_path: Path) -> None:
    starter = tmp_path / "starter.py"
    starter.write_text(
        "import os, subprocess, sys; os.chdir('/')\n"
        f"sys.exit(subprocess.call([sys.executable, {str(program)!r}]))"
    )
    assert run_captured([sys.executable, str(starter)], tmp_path / "graphs") == 3
    assert names(tmp_path / "graphs") == KEPT


@pytest.mark.deep
def test_a_program_that_uses_scanopt_itself(
    program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """PyTensor is imported by a part of scanopt that capture needs, and is not done itself."""
    program.write_text(f"import scanopt_cli; scanopt_cli.load\n{program.read_text()}")
    assert run_captured([sys.executable, str(program)], tmp_path / "graphs") == 3
    assert capfd.readouterr().err == ""
    assert names(tmp_path / "graphs") == KEPT


@pytest.mark.deep
def test_a_test_run(tmp_path: Path) -> None:
    body = textwrap.indent(PROGRAM, "    ")
    (tmp_path / "test_program.py").write_text(f"def test_it():\n{body}")
    pytest_script = Path(sys.executable).with_name("pytest")
    code = run_captured([str(pytest_script), "-q", str(tmp_path)], tmp_path / "graphs")
    assert code == 0
    assert names(tmp_path / "graphs") == KEPT


def test_a_program_without_pytensor_is_left_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the same path, imports nothing of ours, and runs its own sitecustomize."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("here = 'the environment\\'s own'\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, sitecustomize\n"
        "print(sys.path, sitecustomize.here, sitecustomize.__file__)\n"
        "print([name for name in sys.modules if 'scanopt' in name or 'numpy' in name])"
    )
    argv = [sys.executable, str(script)]
    alone = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert run_captured(argv, tmp_path / "graphs") == 0
    assert capfd.readouterr().out == alone.stdout
    assert alone.stdout.endswith("[]\n")
    assert names(tmp_path / "graphs") == []


def test_an_interpreter_without_scanopt(
    program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scanopt_cli.py").touch()  # found before the real one, and of no use
    assert run_captured([sys.executable, str(program)], tmp_path / "graphs") == 3
    out, err = capfd.readouterr()
    assert "[3.0]" in out
    (line,) = err.splitlines()
    assert line.startswith(f"scanopt: nothing is captured: {sys.executable} cannot use scanopt")
    assert names(tmp_path / "graphs") == []


@pytest.mark.deep
def test_a_traceback_is_the_programs_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text("import pytensor\nraise ValueError('mine')\n")
    assert run_captured([sys.executable, str(script)], tmp_path / "graphs") == 1
    err = capfd.readouterr().err
    assert err.endswith("ValueError: mine\n")
    assert "scanopt" not in err


def test_a_program_that_a_signal_ends(tmp_path: Path) -> None:
    code = f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"
    assert run_captured([sys.executable, "-c", code], tmp_path) == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, *deep(signal.SIGINT)])
def test_signals_reach_the_program(number: signal.Signals, tmp_path: Path) -> None:
    """The program cleans up and chooses its exit code; we wait for it."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import pathlib, signal, sys, time
            def leave(*_):
                time.sleep(0.3)
                sys.exit(5)
            signal.signal({int(number)}, leave)
            pathlib.Path({str(tmp_path / "ready")!r}).touch()
            time.sleep(60)
            """
        )
    )
    runner = (
        "import sys; from scanopt_cli.integration.capture.captured_program import run_captured; "
        "sys.exit(run_captured(sys.argv[2:], sys.argv[1]))"
    )
    argv = [sys.executable, "-c", runner, str(tmp_path / "graphs"), sys.executable, str(script)]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(30) == 5
    finally:
        process.kill()
        process.wait()


def test_programs_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ScanoptError, match=r"nowhere.*No such file.*python script\.py"):
        run_captured([str(tmp_path / "nowhere")], tmp_path)
    with pytest.raises(ScanoptError, match="no program to run"):
        run_captured([], tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ScanoptError, match="no directory for graphs"):
        run_captured([sys.executable], tmp_path / "file")


def test_our_environment_is_left_alone(tmp_path: Path) -> None:
    before = dict(os.environ)
    run_captured([sys.executable, "-c", ""], tmp_path)
    assert dict(os.environ) == before
    assert CAPTURE not in os.environ


@pytest.mark.pymc
def test_a_pymc_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import numpy as np
            import pymc as pm
            import pytensor

            with pm.Model() as model:
                rho = pm.Normal("rho")
                levels = pytensor.scan(
                    lambda level, rho: rho * level, outputs_info=[np.float64(1.0)],
                    non_sequences=[rho], n_steps=5, return_updates=False,
                )
                pm.Normal("y", levels, 1.0, observed=np.zeros(5))
            model.compile_logp()(model.initial_point())
            model.compile_dlogp()(model.initial_point())
            """
        )
    )
    assert run_captured([sys.executable, str(script)], tmp_path / "graphs") == 0
    kept = sorted((tmp_path / "graphs").glob("*.scanopt"))
    assert len(kept) == 2
    for path in kept:
        assert len(load(path).recorded) == 1
