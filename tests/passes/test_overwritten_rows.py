"""`compile-safe`, case 7: rows of a mit_mot that a step hands on and overwrites.

As they stand, PyTensor's virtual machine evaluates most of these loops wrongly or not at all. So
what is right is computed by hand, by the definition of a mit_mot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.op import Scan

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph
from support.evaluating import PLAIN
from support.graph_building import arguments, graph_of, optimized, scan, scan_info
from support.mit_mot_loops import simulated_two_rows, two_rows

MODES: dict[str, Any] = {
    "plain": PLAIN,
    "vm": Mode("vm", "fast_run"),
    "no fusion": Mode("vm", "fast_run").excluding("fusion"),
}

HANDED_ON: dict[str, Callable[..., Any]] = {
    "traced": lambda q, a, b: (a + q, b * 2 + a, b),
    "the first traced": lambda q, a, b: (a + q, b * 2 + a, a),
    "traced and read no more": lambda q, a, b: (a + q, a * 2, b),
    "exchanged": lambda q, a, b: (b, a, a + q),
    "moved": lambda q, a, b: (a + q, a, b + q),
    "moved up": lambda q, a, b: (b, b + q, b + q),
    "simplified and exchanged": lambda q, a, b: (b * 1.0, a + 0.0, a + q),
}
OF_VECTORS: dict[str, Callable[..., Any]] = {
    "reversed and traced": lambda q, a, b: (a + q, b * 2 + a, b[::-1]),
    "reversed and exchanged": lambda q, a, b: (b[::-1], a[::-1], a + q),
}
LEFT_ALONE: dict[str, Callable[..., Any]] = {
    "a row that stays": lambda q, a, b: (a, b - q, q * 2.0),
    "sums of themselves": lambda q, a, b: (a + q, b - q, q * 2.0),
    "no more than overwritten": lambda q, a, b: (a * 2.0, q * 3.0, q * 2.0),
}
S = np.arange(1.0, 5.0)
SCALARS = np.array([0.5, -1.0, 2.0, 0.25, 3.0])
VECTORS = np.stack([SCALARS, SCALARS[::-1] * 2], axis=1)


def loop(step: Callable[..., Any], rows: np.ndarray) -> tuple[list[Any], list[Any]]:
    s = pt.dvector("s")
    buffer = pt.tensor("buffer", shape=(None,) * rows.ndim, dtype="float64")
    return [s, buffer], two_rows(step, s, buffer)


def check(
    graph: Graph, step: Callable[..., Any], rows: np.ndarray, modes: Mapping[str, Any] = MODES
) -> None:
    data = arguments(graph, s=S, buffer=rows)
    right = simulated_two_rows(step, S, rows)
    for name, mode in modes.items():
        found = pytensor.function(graph.inputs, graph.outputs, mode=mode)(*data)
        for value, expected in zip(found, right, strict=True):
            np.testing.assert_allclose(value, expected, err_msg=name)


CASES = [
    *((name, SCALARS) for name in HANDED_ON),
    *((name, VECTORS) for name in {**HANDED_ON, **OF_VECTORS}),
]


@pytest.mark.parametrize(("name", "rows"), CASES, ids=lambda value: getattr(value, "ndim", value))
def test_rows_that_are_handed_on_are_copied(name: str, rows: np.ndarray) -> None:
    step = {**HANDED_ON, **OF_VECTORS}[name]
    _, outputs = loop(step, rows)
    work, remarks = optimized(graph_of(*outputs), "compile-safe")
    assert any("a step copies" in remark for remark in remarks)
    check(work, step, rows)
    _, more = optimized(work, "compile-safe")
    assert not [remark for remark in more if remark.startswith("passed")]


@pytest.mark.deep
def test_numba_compiles_them_too() -> None:
    step = HANDED_ON["moved up"]
    work, _ = optimized(graph_of(*loop(step, VECTORS)[1]), "compile-safe")
    check(work, step, VECTORS, {"numba": "NUMBA"})


@pytest.mark.parametrize("preset", ["default", "merge-equal"])
@pytest.mark.parametrize("name", HANDED_ON)
def test_they_are_copied_when_a_mode_compiles(name: str, preset: str) -> None:
    inputs, outputs = loop(HANDED_ON[name], VECTORS)
    with so.enabled(preset):
        function = pytensor.function(inputs, outputs, mode=MODES["no fusion"])
    right = simulated_two_rows(HANDED_ON[name], S, VECTORS)
    for value, expected in zip(function(S, VECTORS), right, strict=True):
        np.testing.assert_allclose(value, expected)


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_overwrites_itself_only_stays(name: str) -> None:
    _, outputs = loop(LEFT_ALONE[name], SCALARS)
    work, remarks = optimized(graph_of(*outputs), "compile-safe")
    assert not [remark for remark in remarks if "a step copies" in remark]
    check(work, LEFT_ALONE[name], SCALARS)


def test_gradients_copy_nothing() -> None:
    x, a = pt.dscalars("x", "a")
    taps = {"initial": pt.stack([x, x]), "taps": [-2, -1]}
    ys, zs = scan(
        lambda y2, y1, z, a: (y1 * a + pt.tanh(y2), z * y1 + a),
        outputs_info=[taps, x],
        non_sequences=[a],
        n_steps=5,
    )
    graph = graph_of(*pt.grad(ys[-1] + zs.sum(), [x, a]))
    _, remarks = optimized(graph, "compile-safe")
    assert not [remark for remark in remarks if "a step copies" in remark]


def test_a_loop_that_is_vectorised() -> None:
    s, buffer = pt.dvector("s"), pt.dvector("buffer")
    outputs = two_rows(HANDED_ON["exchanged"], s, buffer)
    many = vectorize_graph(outputs, {buffer: pt.dmatrix("buffers")})
    work, _ = optimized(graph_of(*many), "compile-safe")
    buffers = np.stack([SCALARS, SCALARS * 2])
    function = pytensor.function(work.inputs, work.outputs, mode=PLAIN)
    found = function(*arguments(work, buffers=buffers, s=S))
    for place, rows in enumerate(buffers):
        right = simulated_two_rows(HANDED_ON["exchanged"], S, rows)
        for value, expected in zip(found, right, strict=True):
            np.testing.assert_allclose(value[place], expected)


def states(rows: int) -> list[Any]:
    """``x[t] = x[t-1] + s[t]`` and ``y[t] = x[t-1]`` in buffers of ``rows``, and y's trace."""
    q, x, y = pt.dscalars("q", "x", "y")
    info = scan_info(n_seqs=1, sit_sot_in_slices=((-1,), (-1,)), n_nit_sot=1)
    s = pt.dvector("s")
    starts = [pt.set_subtensor(pt.zeros(rows)[:1], start) for start in (2.0, 3.0)]
    n = s.shape[0]
    return Scan([q, x, y], [x + q, x, y], info)(n, s, *starts, n)


def test_states_without_room_are_copied_where_they_are_handed_on() -> None:
    work, remarks = optimized(graph_of(*states(1)), "compile-safe")
    assert sum("a step copies 2 outputs" in remark for remark in remarks) == 1
    for mode in MODES.values():
        xs, ys, trace = pytensor.function(work.inputs, work.outputs, mode=mode)(S)
        np.testing.assert_allclose(xs, [12.0])
        np.testing.assert_allclose(ys, [8.0])
        np.testing.assert_allclose(trace, [3.0, 2.0, 3.0, 5.0])


def test_states_with_room_stay() -> None:
    _, remarks = optimized(graph_of(*states(2)), "compile-safe")
    assert not [remark for remark in remarks if "a step copies" in remark]
