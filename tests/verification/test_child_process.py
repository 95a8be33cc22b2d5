"""Whatever a graph does to the process that evaluates it, the caller gets an answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.typed_list import TypedListType

from scanopt_cli.errors import VerificationError
from scanopt_cli.verification import spawning
from scanopt_cli.verification.result import Verdict, Verification
from scanopt_cli.verification.verifying import verify
from support.tiers import deep

x = pt.vector("x")
n = pt.iscalar("n")
PARENT = os.getpid()


class Misbehaving(Op):
    """Copies its input, but does something else first, and only in another process."""

    __props__ = ("deed",)

    def __init__(self, deed: str) -> None:
        self.deed = deed

    def make_node(self, value: Variable) -> Apply:
        return Apply(self, [value], [value.type()])

    def perform(self, node, inputs, output_storage):
        if os.environ.get("SCANOPT_TEST_PARENT") == str(os.getpid()):
            raise RuntimeError("evaluated in the caller's process")
        match self.deed:
            case "killed":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "killed if empty" if inputs[0].size == 0:
                os.kill(os.getpid(), signal.SIGSEGV)
            case "leaves":
                os._exit(0)
            case "fails":
                print("out of luck", file=sys.stderr, flush=True)
                os._exit(7)
            case "sleeps":
                time.sleep(600)
            case "burns":
                until = time.monotonic() + 600
                while time.monotonic() < until:
                    pass
            case "sleeps a little":
                time.sleep(4.5)
            case "spawns":
                subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                time.sleep(600)
            case "exits":
                sys.exit(0)
        output_storage[0][0] = inputs[0].copy()


def run(deed: str, **options: float) -> Verification:
    return verify(([x], [x]), ([x], [Misbehaving(deed)(x)]), **options)


@pytest.fixture(autouse=True)
def parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCANOPT_TEST_PARENT", str(os.getpid()))


def children() -> set[int]:
    """Return the processes that this one has, zombies among them."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("killed", "ended by SIGSEGV while evaluating graph b in run 0"),
        *deep(
            ("leaves", "the process ended early while evaluating graph b in run 0"),
            ("fails", "exit code 7 while evaluating graph b in run 0 (out of luck)"),
            ("exits", "the process ended early while evaluating graph b in run 0"),
        ),
    ],
)
def test_a_child_that_dies_verifies_nothing(deed: str, reason: str) -> None:
    before = children()
    found = run(deed)
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert not found.ok
    assert reason in str(found.reason)
    assert children() <= before


@pytest.mark.deep
@pytest.mark.parametrize(
    ("deed", "patience", "longest"),
    [("burns", 60, "2 s of processor time"), *deep(("sleeps", 12, "24 s"), ("spawns", 12, "24 s"))],
)
def test_a_child_that_does_not_answer_is_stopped(
    deed: str, patience: int, longest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawning, "PATIENCE", patience)
    before = children()
    started = time.monotonic()
    found = run(deed, timeout=2)
    assert time.monotonic() - started < 120
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert f"no answer within {longest} while evaluating graph b in run 0" in str(found.reason)
    assert children() <= before


@pytest.mark.deep
def test_time_in_which_a_child_does_not_run_does_not_count() -> None:
    """So a busy machine changes no result."""
    assert run("sleeps a little", timeout=4, runs=1, modes="plain").ok


def test_a_difference_that_was_seen_is_kept_when_the_child_dies_later() -> None:
    ys = pytensor.scan(lambda a: a * 2, sequences=[x], return_updates=False)
    found = verify(([x], [ys]), ([x], [Misbehaving("killed if empty")(ys + 1)]))
    assert found.verdict is Verdict.DIFFERS
    assert [d.run for d in found.differences] == [0]
    assert "SIGSEGV" in str(found.reason)


def test_progress_is_told() -> None:
    x = pt.vector("x")
    told: list[str] = []
    assert verify(([x], [x + 1]), ([x], [1 + x]), modes="vm", progress=told.append).ok
    assert told[0] == "verifying: starting"
    assert all(text.startswith("verifying: ") for text in told)


@pytest.mark.deep
def test_too_much_memory() -> None:
    huge = pt.zeros((10**6, 10**6, n + 1)).sum()
    found = verify(([n], [huge]), ([n], [huge]))
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert "out of memory" in str(found.reason)


@pytest.mark.usefixtures("evaluated_here")
def test_a_graph_that_does_not_compile() -> None:
    class NoPerform(Misbehaving):
        def make_thunk(self, *args, **kwargs):
            raise ValueError("cannot be compiled")

    found = verify(([x], [x]), ([x], [NoPerform("none")(x)]))
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert "graph b does not compile: ValueError: cannot be compiled" in str(found.reason)


@pytest.mark.usefixtures("evaluated_here")
def test_an_input_of_an_unknown_type() -> None:
    nothing = TypedListType(x.type)("list")
    found = verify(([nothing], [nothing]), ([nothing], [nothing]))
    assert found.verdict is Verdict.COULD_NOT_RUN
    assert "no values can be drawn" in str(found.reason)


def test_an_op_that_cannot_be_sent() -> None:
    op = Misbehaving("none")
    op.lock = threading.Lock()
    with pytest.raises(VerificationError, match="cannot be sent"):
        verify(([x], [x]), ([x], [op(x)]))


@pytest.mark.deep
def test_compiled_functions_of_ops_are_not_sent() -> None:
    ys = pytensor.scan(lambda a: a * 2, sequences=[x], return_updates=False)
    pytensor.function([x], ys)(np.ones(3))
    assert verify(([x], [ys]), ([x], [x * 2])).ok


def test_a_script_without_main_guard_and_ops_of_its_own(tmp_path: Path) -> None:
    """The child neither runs the caller's script again nor imports from the working directory."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working directory')")
    script = tmp_path / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text(
        textwrap.dedent(
            """
            import pytensor.tensor as pt
            from pytensor.graph.basic import Apply
            from pytensor.graph.op import Op
            from scanopt_cli.verification.verifying import verify

            class Double(Op):
                __props__ = ()
                def make_node(self, value):
                    return Apply(self, [value], [value.type()])
                def perform(self, node, inputs, output_storage):
                    output_storage[0][0] = inputs[0] * 2

            print("started")
            x = pt.vector("x")
            print(verify(([x], [Double()(x)]), ([x], [x + x])).verdict)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["started", "identical"], done.stderr


def test_what_is_compiled_for_a_check_stays_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYTENSOR_FLAGS", raising=False)
    environment = spawning.checking_environment(("numba",), tmp_path)
    flags = environment["PYTENSOR_FLAGS"].split(",")
    assert environment["TMPDIR"] == str(tmp_path)
    (where,) = (flag for flag in flags if flag.startswith("base_compiledir="))
    assert Path(where.partition("=")[2]).parent == Path(config.base_compiledir)
