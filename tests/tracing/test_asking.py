"""What is asked for: loops, slots and steps, on which arguments; errors are one line each."""

from __future__ import annotations

import csv
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph
from scanopt_cli.reports.sparklines import sparkline
from scanopt_cli.tracing.exporting import csv_bytes, npz_bytes
from scanopt_cli.tracing.step_range import StepRange, StepsLike
from support.graph_building import graph_of, power, scan

pytestmark = pytest.mark.usefixtures("evaluated_here")
RANGES: list[tuple[StepsLike, list[int]]] = [
    (None, [0, 1, 2, 3, 4, 5]),
    ("2:4", [2, 3]),
    ("4:", [4, 5]),
    (":2", [0, 1]),
    (":", [0, 1, 2, 3, 4, 5]),
    ("-2:", [4, 5]),
    ("-3:-1", [3, 4]),
    ("1:-2", [1, 2, 3]),
    ("-4:4", [2, 3]),
    ("3", [3]),
    ("-1", [5]),
    (2, [2]),
    (slice(1, 3), [1, 2]),
    ("9:", []),
]


@pytest.mark.parametrize(("steps", "wanted"), RANGES)
def test_ranges_of_steps(steps: StepsLike, wanted: list[int]) -> None:
    graph = graph_of(power(6)[1])
    (loop,) = so.trace(graph, [0.9], steps=steps).loops
    assert list(loop.steps) == wanted
    values = 0.9 ** (2.0 ** np.arange(1, 7))
    assert_allclose(np.asarray(loop["x"].rows), values[wanted])


@pytest.mark.parametrize("steps", ["", "a:b", "1:2:3", "5:2", "3:3", "-1:-2", 1.5, "--", "0x1:"])
def test_what_is_no_range(steps: Any) -> None:
    with pytest.raises(so.ScanoptError, match=r"--steps: .*; write a:b"):
        StepRange.of(steps, where="--steps")


def test_a_loop_is_not_run_further_than_it_is_asked_for() -> None:
    x = pt.dscalar("x")
    graph = graph_of(scan(lambda y: y * 0.5, outputs_info=[x], n_steps=10**9, name="f"))
    with pytest.raises(so.ScanoptError):
        so.trace(graph_of(graph.outputs[0][-1], pt.zeros(10**15)), [1.0], slot="nothing")
    work = so.optimize(graph_of(graph.outputs[0][-1]), "save-mem").graph
    (loop,) = so.trace(work, [1.0], steps=":3").loops
    assert_allclose(loop["x"].values, [0.5, 0.25, 0.125])
    assert (loop.n_steps, loop.is_complete) == (3, False)


def _two_loops() -> Graph:
    x, v = pt.dscalar("x"), pt.dvector("v")
    one = scan(lambda y: y * 2, outputs_info=[x], n_steps=3, name="double")
    ys, zs = scan(lambda a, y: (a + y, a), sequences=[v], outputs_info=[x, None], name="sums")
    return graph_of(one, ys, zs)


def test_slots_are_chosen_by_name() -> None:
    arguments = {"x": 1.0, "v": np.ones(3)}
    trace = so.trace(_two_loops(), arguments, slot="v")
    assert [(loop.name, [s.name for s in loop.slots]) for loop in trace.loops] == [("sums", ["v"])]
    trace = so.trace(_two_loops(), arguments, slot=["sit_sot[0]"])
    assert {loop.name for loop in trace.loops} == {"double", "sums"}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"loop": "triple"}, r"^--loop: there is no loop 'triple'; loops: sums, double"),
    ({"slot": "w"}, r"^--slot: there is no slot 'w'; slots: v, x, nit_sot\[0\]"),
    ({"outer_step": 1}, r"^--outer-step: sums is in no loop"),
    ({"outer_step": -1}, r"^--outer-step: steps are counted from 0"),
    ({"arguments": [1.0]}, r"^arguments: the graph takes 2 arguments, and there are 1; inputs"),
    ({"arguments": {"x": 1.0}}, r"^arguments: v is missing; inputs: "),
    ({"arguments": {"x": 1.0, "v": [1.0], "w": 2}}, r"^arguments: there is no input 'w'"),
    ({"arguments": {"x": [1.0], "v": [1.0]}}, r"^arguments: x is no Scalar\(float64"),
    ({"arguments": "no such file.npz"}, r"^no such file.npz: cannot be read: No such file"),
    ({"timeout": 0}, r"timeout must be positive"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_is_wrong_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(so.ScanoptError, match=message) as caught:
        so.trace(_two_loops(), **options)
    assert "\n" not in str(caught.value)


def test_a_graph_without_a_loop() -> None:
    with pytest.raises(so.ScanoptError, match="there is no loop in this graph"):
        so.trace(graph_of(pt.dscalar("x") + 1))


def test_a_sequence_that_is_too_short() -> None:
    v = pt.dvector("v")
    graph = graph_of(scan(lambda a: a * 2, sequences=[v], n_steps=5))
    with pytest.raises(so.ScanoptError, match="rows"):
        so.trace(graph, [np.ones(3)])


def test_recorded_arguments_come_first(tmp_path: Path) -> None:
    graph = graph_of(power(3)[1])
    recorded = so.Graph(fgraph=graph.fgraph, recorded=((np.asarray(0.5),),))
    trace = so.trace(recorded)
    assert (trace.arguments, trace.is_drawn) == ("recorded call 1", False)
    assert trace.loops[0].slots[0].initial == (0.5,)
    drawn = so.trace(graph, seed=3)
    assert drawn.is_drawn
    assert drawn.arguments == "random, seed 3"
    assert_array_equal(drawn.loops[0]["x"].values, so.trace(graph, seed=3).loops[0]["x"].values)


def test_arguments_in_a_file(tmp_path: Path) -> None:
    file, in_order = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(file, v=np.arange(3.0), x=2.0)
    np.savez(in_order, *[{"x": 2.0, "v": np.arange(3.0)}[v.name] for v in _two_loops().inputs])
    for path in (file, in_order):
        trace = so.trace(_two_loops(), path)
        assert_allclose(trace["sums"]["v"].values, [0, 1, 2])
        assert trace.arguments == str(path)
    single = tmp_path / "c.npy"
    np.save(single, np.ones(3))
    broken = tmp_path / "d.npz"
    broken.write_bytes(file.read_bytes()[:90])
    objects = tmp_path / "e.npz"
    np.savez(objects, v=np.array([{}], dtype=object), x=1.0)
    for path in (single, broken, objects):
        with pytest.raises(so.ScanoptError, match=path.name):
            so.trace(_two_loops(), path)


def test_shared_variables_keep_their_contents() -> None:
    from pytensor import shared

    w = shared(np.asarray(3.0), name="w")
    x = pt.dscalar("x")
    graph = graph_of(scan(lambda y, w: y * w, outputs_info=[x], non_sequences=[w], n_steps=2))
    (loop,) = so.trace(graph, {"x": 1.0}).loops
    assert_allclose(loop.slots[0].values, [3.0, 9.0])
    assert float(w.get_value()) == 3.0


def test_files_of_a_trace() -> None:
    v, x = pt.dmatrix("v"), pt.dvector("x")
    ys, zs = scan(lambda a, y: (a + y, a[0] / 0), sequences=[v], outputs_info=[x, None], name="f")
    (loop,) = so.trace(graph_of(ys, zs), {"v": np.eye(2), "x": np.zeros(2)}).loops
    header, *rows = csv.reader(csv_bytes(loop).decode().splitlines())
    assert header == ["step", "v[0]", "v[1]", "x[0]", "x[1]", "nit_sot[0]"]
    assert rows == [
        ["0", "1.0", "0.0", "1.0", "0.0", "inf"],
        ["1", "0.0", "1.0", "1.0", "1.0", "nan"],
    ]
    with np.load(BytesIO(npz_bytes(loop))) as arrays:
        assert {"step", "v", "x", "x/initial", "nit_sot[0]"} <= {*arrays.files}
        assert_array_equal(arrays["x"], [[1, 0], [1, 1]])


def test_values_that_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scanopt_cli.tracing.recording._MOST_BYTES", 100)
    with pytest.raises(so.ScanoptError, match="ask for fewer"):
        so.trace(graph_of(power(50)[1]), [0.9])
    assert so.trace(graph_of(power(50)[1]), [0.9], steps="-5:").loops[0].n_steps == 50


def test_sparklines() -> None:
    def line(*numbers: float, width: int = 10) -> str:
        return sparkline([np.asarray(number) for number in numbers], width)

    assert line(0, 1, 2, 3, 4, 5, 6, 7) == "▁▂▃▄▅▆▇█"
    assert line(2, 2) == "▁▁"
    assert line(1, np.nan, 0, np.inf) == "█×▁×"
    assert line(*range(100), width=4) == "▁▃▆█"
    assert line() == ""
    assert line(-1e308, 1e308) == "▁█"
    assert sparkline([np.asarray("text")], 5) == ""
    assert sparkline([np.array([0.0, 2.0]), np.array([2.0, 4.0])], 5) == "▁█"


def test_a_child_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from scanopt_cli.tracing import child
    from scanopt_cli.verification import spawning

    monkeypatch.setattr(child, "run_child", spawning.run_child)
    told: list[str] = []
    (loop,) = so.trace(graph_of(power(3)[1]), [0.5], progress=told.append).loops
    assert_allclose(loop["x"].values, [2.0**-2, 2.0**-4, 2.0**-8])
