"""What graphs cost is measured in processes that take turns; whatever they do, one is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

import scanopt_cli as so
from scanopt_cli.benchmarking.result import Benchmark, Clock, Cost, Estimate, Measured
from scanopt_cli.errors import ScanoptError, VerificationError
from scanopt_cli.ir.graph import Graph, from_io
from support.graph_building import scan
from support.tiers import deep

x = pt.dvector("x")
ONES = {"x": np.ones(4)}


class Costing(Op):
    """Copies its input, but does something else first."""

    __props__ = ("deed",)

    def __init__(self, deed: str) -> None:
        self.deed = deed

    def make_node(self, value: Variable) -> Apply:
        return Apply(self, [value], [value.type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        match self.deed:
            case "burns":
                until = time.process_time() + 0.03
                while time.process_time() < until:
                    pass
            case "sleeps":
                time.sleep(0.03)
            case "takes 80 MB":
                np.ones(10_000_000)
            case "prints":
                print("{}", flush=True)
                os.write(1, b"[1]\n")
                input_ = sys.stdin.read()
                assert not input_
            case "raises":
                raise ValueError("no luck\nat all")
            case "leaves":
                os._exit(0)
            case "killed":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "waits":
                time.sleep(600)
        output_storage[0][0] = inputs[0].copy()


def measured(*deeds: str, **options: Any) -> Benchmark:
    graphs = [([x], [Costing(deed)(x)]) for deed in deeds]
    quick = {"modes": "vm", "rounds": 1, "seconds": 0.02, "arguments": ONES}
    return so.bench(*graphs, **{**quick, **options})


def test_who_is_slower() -> None:
    found = measured("nothing", "burns", fail_slower=1.5)
    nothing, burns = found.measured
    assert nothing.costs[0].ratio is None
    (cost,) = burns.costs
    assert cost.ratio is not None
    assert cost.ratio.low > 100
    assert 0.03 <= cost.processor.value < 0.1
    assert cost.processor.low <= cost.processor.value <= cost.processor.high
    assert found.slower == (burns,)
    assert not found.is_drawn
    assert "times as long" in str(found)
    assert not found.notes


@pytest.mark.deep
def test_the_clock_that_counts_waiting() -> None:
    found = measured("nothing", "sleeps", clock="wall", fail_slower=1.5)
    (cost,) = found.measured[1].costs
    assert cost.ratio is not None
    assert cost.ratio.low > 100
    assert cost.wall.value >= 0.03 > cost.processor.value
    assert found.slower


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are forgotten on Linux only")
def test_memory_of_a_call() -> None:
    found = measured("nothing", "takes 80 MB")
    nothing, takes = (one.costs[0].memory for one in found.measured)
    assert nothing is not None
    assert takes is not None
    assert nothing < 10_000_000 < 75_000_000 < takes < 90_000_000


@pytest.mark.deep
def test_what_a_graph_prints_is_no_answer() -> None:
    assert measured("prints").measured[0].costs[0].calls >= 3


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ("killed", "mode vm: the process was ended by SIGSEGV while calling"),
        *deep(
            ("raises", "mode vm: ValueError: no luck while calling"),
            ("leaves", "mode vm: the process ended early while calling"),
        ),
    ],
)
def test_a_graph_that_cannot_be_called(deed: str, message: str) -> None:
    with pytest.raises(VerificationError) as raised:
        measured("nothing", deed)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.deep
def test_other_results_are_told_of() -> None:
    found = so.bench(
        ([x], [x.sum()]), ([x], [x.sum() + 1]), modes="vm", rounds=1, seconds=0.01, arguments=ONES
    )
    (note,) = found.notes
    assert "other results" in note


def test_growth_and_drawn_arguments() -> None:
    """Twenty times as many steps of a loop in Python take clearly longer."""
    h, n = pt.dscalar("h"), pt.lscalar("n")
    last = scan(lambda a, h: pt.tanh(h * a), sequences=[x], outputs_info=[h], n_steps=n)[-1]
    found = so.bench(([x, h, n], [last]), modes="vm", rounds=1, seconds=0.05, grow="n=50,1000")
    assert found.is_drawn
    assert found.grown in (("n",), ("n", "x"))
    (one,) = found.measured
    assert [cost.size for cost in one.costs] == [50, 1000]
    assert one.exponent is not None
    assert 0.3 < one.exponent.value < 1.7
    assert "n^" in str(found)


def test_a_graph_with_fewer_inputs_and_recorded_calls() -> None:
    y, z = pt.dvector("y"), pt.dmatrix("z")
    calls = ((np.ones(3), np.ones(5)),)
    whole = Graph(fgraph=from_io([x, y], [x.sum() + 0 * y.sum()]).fgraph, recorded=calls)
    found = so.bench(([x], [x.sum()]), whole, modes="vm", rounds=1, seconds=0.01)
    assert found.arguments == "recorded call 1: x (3), y (5)"
    with pytest.raises(VerificationError, match=r"signatures|inputs"):
        so.bench(([x], [x.sum()]), ([z], [z.sum()]), rounds=1)


@pytest.mark.deep
def test_a_graph_with_operations_in_place() -> None:
    """Its arguments are copied, outside of what is timed: no call sees what another left."""
    inside, new = (pt.inc_subtensor(x[:1], 1.0, inplace=inplace) for inplace in (True, False))
    found = so.bench(
        *(([x], [inside]), ([x], [new])),
        modes="vm",
        rounds=1,
        seconds=0.01,
        arguments=ONES,
        grow="x=4,8",
    )
    assert found.measured[0].costs[0].calls > 10
    assert not found.notes


@pytest.mark.parametrize(("low", "is_slower"), [(1.04, False), (1.06, True)])
def test_only_what_is_certain_is_a_finding(low: float, is_slower: bool) -> None:
    time = Estimate(1.2, 1.1, 1.3)
    costs = tuple(
        Cost(size=None, processor=time, wall=time, ratio=ratio, calls=9, memory=None)
        for ratio in (None, Estimate(1.2, low, 1.3))
    )
    measured = tuple(
        Measured(
            source="graph",
            mode="vm",
            reference=reference,
            compilation=1.0,
            compilation_processor=1.0,
            compilation_memory=None,
            costs=(cost,),
            exponent=None,
            profile=None,
        )
        for reference, cost in zip((None, 0), costs, strict=True)
    )
    found = Benchmark(
        arguments="given",
        is_drawn=False,
        clock=Clock.PROCESSOR,
        rounds=3,
        grown=(),
        measured=measured,
        bound=1.05,
        notes=(),
    )
    assert bool(found.slower) == is_slower
    assert ("more than 1.05 times" in str(found)) == is_slower


@pytest.mark.deep
def test_several_modes_of_one_graph() -> None:
    found = so.bench(
        ([x], [x.sum()]), modes=["vm", "numba"], rounds=1, seconds=0.01, arguments=ONES
    )
    first, second = found.measured
    assert (first.mode, second.mode, second.reference) == ("vm", "numba", 0)
    assert found.reference(second) is first


WRONG: dict[str, dict[str, Any]] = {
    "there is no graph": {"graphs": ()},
    "rounds, steps, seconds and timeout": {"rounds": 0},
    "--mode: mode plain compiles nothing": {"modes": "plain"},
    "there is no mode": {"modes": "nope"},
    "--fail-slower: takes a second graph": {"fail_slower": 1.05},
    "arguments: there is no input 'y'": {"arguments": {"y": 1}},
    "--grow: there is no input 'n'": {"grow": "n=1,2"},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_options(message: str) -> None:
    options = dict(WRONG[message])
    graphs = options.pop("graphs", (([x], [x.sum()]),))
    with pytest.raises(ScanoptError, match=message):
        so.bench(*graphs, **options)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what runs")
def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    """Nor files."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom test_benching import measured\n"
        "measured('waits', 'waits', progress=lambda text: print(text, flush=True))\n"
    )
    files = tmp_path / "files"
    files.mkdir()
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(files)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    assert process.stdout is not None
    assert "compiling" in process.stdout.readline()
    time.sleep(1)
    children = _children_of(process.pid)
    assert len(children) == 2
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert not any(Path(f"/proc/{child}/cmdline").exists() for child in children)
    assert not list(files.iterdir())


def _children_of(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found
