"""Commands that fail on a graph: PyTensor's rewrites are counted in their processes."""

from __future__ import annotations

import _thread
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from time import monotonic, sleep
from typing import ClassVar

import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.culprits.culprit import Maker
from scanopt_cli.culprits.properties import CommandFails, Limits, Outcome, Property, State
from scanopt_cli.errors import ScanoptError, VerificationError
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.verification.spawning import Gate

PYTHON = sys.executable

COMPILING = """
import sys
import scanopt_cli as so
import pytensor, pytensor.tensor as pt

def compiled(inputs, outputs, name):
    mode = pytensor.compile.mode.Mode("vm", "fast_run").excluding("fusion")
    return pytensor.function(inputs, outputs, mode=mode, name=name)

graph = so.load(sys.argv[1]).fgraph
y = pt.dvector("y")
"""
SEVERAL = f"""{COMPILING}
compiled([y], (y + 0) * 1, "right")
wrong = compiled(graph.inputs, graph.outputs, "wrong")
compiled([y], y * 1, "behind")
sys.exit(int(wrong(1.0)[0] != 0))
"""
DERIVING = """
import sys
import pytensor.tensor as pt
from pytensor.graph.rewriting.utils import rewrite_graph
y = pt.dvector("y")
assert rewrite_graph(y + 0) is not None
sys.exit(3)
"""
"""What a program rewrites for itself is not counted."""


def booleans() -> Graph:
    """``local_add_canonizer`` adds booleans up."""
    x = pt.dscalar("x")
    is_large = pt.gt(abs(x), 0.001)
    return from_io([x], [(1 - is_large) + (1 - is_large)])


def doubled() -> Graph:
    """The same, which no rewriter gets wrong."""
    x = pt.dscalar("x")
    return from_io([x], [(1 - pt.gt(abs(x), 0.001)) * 2])


@pytest.fixture(autouse=True)
def _in_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a child process raise what a built-in pass raises."""
    monkeypatch.setenv("SCANOPT_STRICT", "1")


def command(directory: Path, text: str, name: str = "check.py") -> str:
    path = directory / name
    path.write_text(text)
    return f"{PYTHON} {path} {{}}"


def outcome(text: str, **limits: float) -> Outcome:
    """Return how a command ends on a graph that it does not read."""
    graph = booleans()
    bounds = Limits(timeout=limits.get("timeout", 60), memory=int(limits.get("memory", 1 << 33)))
    return CommandFails(command=text).of(graph, graph, bounds)


@pytest.mark.deep
def test_the_rewrite_in_one_of_several_functions(tmp_path: Path) -> None:
    """It is counted behind those of the functions before, and those behind it do not matter."""
    wrong = CommandFails(command=command(tmp_path, SEVERAL))
    found = so.bisect(booleans(), "none", wrong=wrong)
    (culprit,) = found.culprits
    assert (culprit.maker, culprit.name) == (Maker.PYTENSOR, "local_add_canonizer")
    assert re.fullmatch(r"number 2, function wrong, at check.py:\d+", culprit.function or "")
    assert culprit.is_certain
    assert culprit.number is not None
    assert 1 < culprit.number < culprit.of
    assert culprit.why == "exit code 1"
    assert "canonicalize" in culprit.within
    assert culprit.place is not None
    assert culprit.place.startswith("math.py:")
    assert culprit.before is not None
    assert culprit.after is not None
    assert not so.diff(culprit.before, culprit.after).same
    assert found.probes <= 4 + 1 + 4 + 1


@pytest.mark.deep
def test_a_command_of_several_processes(tmp_path: Path) -> None:
    """A shell starts two, and the second forks: all of them count together."""
    first = command(tmp_path, f'{COMPILING}\ncompiled([y], (y + 0) * 1, "right")\n', "first.py")
    forked = "\nimport os\nif os.fork() == 0:\n    os._exit({})\nsys.exit(os.wait()[1] != 0)\n"
    inside = 'int(compiled(graph.inputs, graph.outputs, "wrong")(1.0)[0] != 0)'
    second = command(tmp_path, COMPILING + forked.format(inside), "second.py")
    wrong = CommandFails(command=f"sh -c '{first} && {second}'")
    (culprit,) = so.bisect(booleans(), "none", wrong=wrong).culprits
    assert culprit.name == "local_add_canonizer"
    assert culprit.number is not None
    assert culprit.number > 1
    assert culprit.function is not None
    assert "function wrong, at second.py:" in culprit.function


def test_twin_a_command_that_is_right(tmp_path: Path) -> None:
    wrong = CommandFails(command=command(tmp_path, SEVERAL))
    assert not so.bisect(doubled(), "none", wrong=wrong).culprits


@dataclass(frozen=True)
class Doubling(Pass):
    """Write a product by two as a sum, which is right, and which PyTensor gets wrong."""

    name: ClassVar[str] = "doubling"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Rewrite the output."""
        node = context.fgraph.outputs[0].owner
        if node is not None and "Mul" in str(node.op):
            number = node.inputs[0]
            yield Rewrite({node.outputs[0]: number + number})


@pytest.mark.deep
@pytest.mark.parametrize("by_command", [True, False], ids=["command", "values"])
def test_a_pass_and_a_rewrite_of_what_it_made(tmp_path: Path, by_command: bool) -> None:
    """Both are named, as where values differ."""
    wrong: Property = so.ValuesDiffer(compiled_by="vm")
    if by_command:
        wrong = CommandFails(command=command(tmp_path, SEVERAL))
    of_pass, of_pytensor = so.bisect(doubled(), (Doubling(),), wrong=wrong).culprits
    assert (of_pass.maker, of_pass.name) == (Maker.SCANOPT, "doubling")
    assert (of_pytensor.maker, of_pytensor.name) == (Maker.PYTENSOR, "local_add_canonizer")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; sys.exit(3)", "exit code 3, and PyTensor rewrites nothing in the command"),
        (DERIVING, "exit code 3, and PyTensor rewrites nothing in the command"),
        (SEVERAL.replace("!= 0", "< 9"), "exit code 1, as without PyTensor's [0-9]+ rewrites"),
        ("import sys; sys.exit(125)", "cannot be evaluated: exit code 125, cannot be tested"),
    ],
    ids=["nothing", "no-function", "always", "open"],
)
def test_commands_that_no_rewrite_makes_fail(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        so.bisect(booleans(), "none", wrong=CommandFails(command=command(tmp_path, text)))


@pytest.mark.deep
def test_a_count_that_changes(tmp_path: Path) -> None:
    """One more function is compiled in each run."""
    counting = (
        f"from pathlib import Path\ncount = Path({str(tmp_path / 'count')!r})\n"
        "count.touch()\ncount.write_text(count.read_text() + '.')\n"
        'for _ in count.read_text():\n    compiled([y], (y + 0) * 1, "more")\n'
    )
    text = SEVERAL.replace("wrong =", f"{counting}wrong =")
    with pytest.raises(VerificationError, match="rewrites are not the same each time"):
        so.bisect(booleans(), "none", wrong=CommandFails(command=command(tmp_path, text)))


def test_an_interpreter_without_scanopt(tmp_path: Path) -> None:
    (tmp_path / "scanopt_cli.py").write_text("raise ImportError('none here')\n")
    text = "import sys, pytensor; sys.exit(1)"
    with pytest.raises(ScanoptError, match=r"--check: .* cannot use scanopt \(none here\)"):
        so.bisect(booleans(), "none", wrong=CommandFails(command=command(tmp_path, text)))


@pytest.mark.parametrize(
    ("code", "state", "kinds"),
    [
        ("exit 0", State.FINE, ()),
        ("exit 1", State.BROKEN, ("exit code",)),
        ("exit 77", State.BROKEN, ("exit code",)),
        ("exit 125", State.UNKNOWN, ()),
        ("kill -ABRT $$", State.BROKEN, ("ended by SIGABRT",)),
        ("sleep 60", State.BROKEN, ("no answer",)),
    ],
)
def test_how_a_command_ends(code: str, state: State, kinds: tuple[str, ...]) -> None:
    found = outcome(f"sh -c '{code}' {{}}", timeout=1)
    assert (found.state, found.kinds) == (state, kinds)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds another process's memory")
def test_memory_of_a_command() -> None:
    text = f"{PYTHON} -c 'bytearray(2 << 30)' {{}}"
    assert outcome(text, memory=1 << 30).state is State.BROKEN
    assert outcome(text, memory=4 << 30).state is State.FINE


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for somebody to notice."""
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="tells of processes there")
@pytest.mark.parametrize("how", ["time", "interrupt"])
def test_nothing_is_left_running(tmp_path: Path, how: str) -> None:
    """The process that a command has started ends with it."""
    started = tmp_path / "pid"
    text = f"sh -c 'sleep 300 & echo $! > {started}; wait' {{}}"
    begun = monotonic()
    if how == "time":
        assert outcome(text, timeout=1).state is State.BROKEN
    else:
        timer = Timer(1, _thread.interrupt_main)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            outcome(text)
    assert monotonic() - begun < 30
    pid = int(started.read_text())
    for _ in range(50):
        if not is_running(pid):
            break
        sleep(0.1)
    assert not is_running(pid)


class _Scripted(CommandFails):
    """What a command shows after so many rewrites."""

    __slots__ = ("shown",)

    def __init__(self, shown: str) -> None:
        object.__setattr__(self, "command", "{}")
        object.__setattr__(self, "shown", shown)

    def of(self, *_: object) -> Outcome:
        return self._at(len(self.shown) - 1)

    def gated(self, graph: Graph, original: Graph, gate: Gate, limits: Limits) -> Outcome:
        most = len(self.shown) - 1
        return self._at(most if gate.most is None else gate.most)

    def _at(self, position: int) -> Outcome:
        state, kinds = {
            ".": (State.FINE, ()),
            "?": (State.UNKNOWN, ()),
            "!": (State.BROKEN, ("no answer",)),
            "#": (State.BROKEN, ("exit code",)),
        }[self.shown[position]]
        return Outcome(state, f"shows {self.shown[position]}", n_rewrites=position, kinds=kinds)


@pytest.mark.parametrize(
    ("shown", "since", "number"),
    [
        ("...###", 3, 3),
        ("..!!##", 2, 4),  # a fault of another kind
        ("..!?!?!?!?##", 2, 10),
        ("!!!!.###", 5, 5),
        ("!!!!!###", 0, 5),
        (".?.#", 3, 3),
    ],
)
def test_faults_of_other_kinds_leave_it_open(shown: str, since: int, number: int) -> None:
    (culprit,) = so.bisect(booleans(), "none", wrong=_Scripted(shown)).culprits
    assert (culprit.since, culprit.number, culprit.of) == (since, number, len(shown) - 1)
    assert culprit.is_certain == (since == number)
    assert culprit.open == ("" if culprit.is_certain else f"shows {shown[number - 1]}")
    text = str(so.Bisection(property="p", pipeline="none", culprits=(culprit,), probes=1))
    if not culprit.is_certain:
        range_ = f"one of PyTensor's rewrites {since or 1} to {number} of {len(shown) - 1}"
        assert f"{'' if since else 'none, or '}{range_}:" in text
        assert f"which one, the graphs between leave open: shows {shown[number - 1]}" in text
